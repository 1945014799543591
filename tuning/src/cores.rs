//! `cores`: measures 1, 2, ... shards under an objective, or reads what was measured, and says what
//! a rate takes.

mod child;
mod html;
mod measure;
mod table;

use std::path::Path;

pub(crate) use measure::{Campaign, Scratch, measure};

use crate::{
    measured::Measured,
    model::answer::{Answer, Models, NoAnswer, Question},
};

/// The answers to some rates, with what they rest on.
#[derive(Debug, Clone)]
pub(crate) struct Advice {
    /// What was measured.
    pub(crate) measured: Measured,
    /// What was fitted to it.
    pub(crate) models: Models,
    /// Each rate and its answer.
    pub(crate) answers: Vec<(Question, Result<Answer, NoAnswer>)>,
}

impl Advice {
    /// Answers `rates`; none given: some around what was measured.
    pub(crate) fn new(measured: Measured, question: &Question, rates: &[f64]) -> Self {
        let models = Models::new(&measured.points, question.objective);
        let rates = if rates.is_empty() {
            rates_around(&models)
        } else {
            rates.to_vec()
        };
        let answers = rates
            .into_iter()
            .map(|rate| {
                let question = Question { rate, ..*question };
                (question, models.answer(&question))
            })
            .collect();
        Self {
            measured,
            models,
            answers,
        }
    }

    /// As lines for a terminal.
    pub(crate) fn to_text(&self) -> String {
        table::render(self)
    }

    /// As a page that needs nothing else.
    pub(crate) fn to_html(&self) -> String {
        html::render(self)
    }

    /// As one JSON object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        let answers: Vec<serde_json::Value> = self
            .answers
            .iter()
            .map(|(question, answer)| match answer {
                Ok(answer) => serde_json::json!({"rate": question.rate, "answer": answer}),
                Err(reason) => serde_json::json!({
                    "rate": question.rate,
                    "no_answer": reason,
                    "text": reason.to_string(),
                }),
            })
            .collect();
        let models = &self.models;
        serde_json::json!({
            "format": 1,
            "objective": models.objective,
            "capacities": models.curve.capacities(),
            "usl": models.usl,
            "peak_shards": models.usl.and_then(|usl| usl.peak()),
            "demand": models.demand,
            "sizes": models.sizes,
            "answers": answers,
        })
    }

    /// Whether every rate has an answer.
    pub(crate) fn is_complete(&self) -> bool {
        !self.answers.is_empty() && self.answers.iter().all(|(_, answer)| answer.is_ok())
    }

    /// Writes the measured points and the page into a folder.
    pub(crate) fn save(&self, folder: &Path) -> Result<(), String> {
        self.measured.save(folder)?;
        let path = folder.join("cores.html");
        std::fs::write(&path, self.to_html())
            .map_err(|error| format!("{}: {error}", path.display()))
    }
}

/// Half of the largest capacity, all of it that is planned with, and twice and five times that.
fn rates_around(models: &Models) -> Vec<f64> {
    let capacities = models.curve.capacities();
    let largest = capacities.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    if largest <= 0.0 {
        return Vec::new();
    }
    [0.25, 0.5, 0.75, 1.5, 3.0, 10.0]
        .into_iter()
        .map(|factor| round(largest * factor))
        .collect()
}

/// Two digits, as people ask.
fn round(rate: f64) -> f64 {
    let unit = 10_f64.powf(rate.log10().floor() - 1.0);
    (rate / unit).round() * unit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_rounded_to_two_digits() {
        assert_eq!(round(12_345.0), 12_000.0);
        assert_eq!(round(987.0), 990.0);
        assert!((round(7.77) - 7.8).abs() < 1e-9);
    }
}
