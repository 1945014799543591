//! One operation of a document as one declaration.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Options, Source, object, parameters::Arguments, schema::Schemas, text};

/// Characters of a tool's name at the most; a number may be added.
const NAME_BYTES_MAX: usize = 120;

/// An operation and where it stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) path: &'a str,
    /// Lower case.
    pub(super) method: &'static str,
    /// The path item.
    pub(super) item: &'a Value,
    pub(super) operation: &'a Value,
}

/// The request methods of a path item.
pub(super) fn method(name: &str) -> Option<&'static str> {
    let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
    methods.into_iter().find(|method| *method == name)
}

impl<'a> Operation<'a> {
    /// The declaration; what had to be changed is added to `notes`.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn declaration(
        &self,
        server: &str,
        options: &Options,
        notes: &mut Vec<String>,
    ) -> Result<Value, String> {
        let mut schemas = Schemas::of_input(self.source);
        let mut arguments = Arguments::default();
        arguments.take(self, &mut schemas, notes)?;
        self.body(&mut arguments, &mut schemas, notes)?;
        let mut input = Map::new();
        input.insert("type".to_owned(), "object".into());
        input.insert("properties".to_owned(), Value::Object(arguments.properties));
        if !arguments.required.is_empty() {
            input.insert("required".to_owned(), json!(arguments.required));
        }
        input.insert("additionalProperties".to_owned(), false.into());
        schemas.finish(&mut input, notes);
        let mut tool = object([
            ("name", self.name().into()),
            ("description", self.description().into()),
            ("targetHost", server.into()),
            ("path", self.path.into()),
            ("method", self.method.to_ascii_uppercase().into()),
            ("inputSchema", Value::Object(input)),
        ]);
        if let Some(title) = text(self.operation, "summary") {
            tool["title"] = title.into();
        }
        if !options.without_output
            && let Some(output) = self.output(notes)
        {
            tool["outputSchema"] = output;
        }
        let mut metadata = json!({
            "routing": {
                "parameters": arguments.locations,
                "unmappedArguments": "reject",
                "requireCompleteParameterMappings": true,
            },
            "safety": self.safety(),
        });
        if options.allows_private {
            metadata["runtime"] = json!({"allowPrivateTargetHost": true});
        }
        tool["toolMetadata"] = metadata;
        Ok(tool)
    }

    fn name(&self) -> String {
        let wanted = match text(self.operation, "operationId") {
            Some(id) => id.to_owned(),
            None => format!("{}_{}", self.method, self.path),
        };
        let mut name = String::new();
        for character in wanted.chars() {
            let is_sound = character.is_ascii_alphanumeric() || "_.-".contains(character);
            match is_sound {
                true => name.push(character),
                false if name.ends_with('_') || name.is_empty() => {}
                false => name.push('_'),
            }
        }
        name.truncate(NAME_BYTES_MAX);
        let name = name.trim_end_matches('_');
        if name.is_empty() {
            return self.method.to_owned();
        }
        name.to_owned()
    }

    fn description(&self) -> String {
        let parts = ["summary", "description"].map(|member| text(self.operation, member));
        let mut parts: Vec<&str> = parts.into_iter().flatten().collect();
        parts.dedup();
        if parts.is_empty() {
            parts.extend(text(self.item, "summary"));
        }
        match parts.is_empty() {
            true => format!("{} {}", self.method.to_ascii_uppercase(), self.path),
            false => parts.join("\n\n"),
        }
    }

    /// RFC 9110 sections 9.2.1 and 9.2.2.
    fn safety(&self) -> Value {
        match self.method {
            "get" | "head" | "options" => json!({"read_only": true, "idempotent": true}),
            "put" => json!({"read_only": false, "idempotent": true}),
            "delete" => json!({"read_only": false, "idempotent": true, "destructive": true}),
            _ => json!({"read_only": false}),
        }
    }

    /// The body becomes one argument.
    fn body(
        &self,
        arguments: &mut Arguments,
        schemas: &mut Schemas<'a>,
        notes: &mut Vec<String>,
    ) -> Result<(), String> {
        let Some(body) = self.operation.get("requestBody") else {
            return Ok(());
        };
        let body = self
            .source
            .resolve(body)
            .ok_or("the reference of its body leads nowhere")?;
        let is_required = body.get("required") == Some(&Value::Bool(true));
        let content = body.get("content").and_then(Value::as_object);
        let json = content
            .into_iter()
            .flatten()
            .find(|(media, _)| is_json(media))
            .map(|(_, content)| content);
        let Some(json) = json else {
            if is_required {
                return Err("its body is not JSON".to_owned());
            }
            notes.push("the body is not JSON, and left out".to_owned());
            return Ok(());
        };
        if matches!(self.method, "get" | "head") {
            notes.push("a GET has no body: it is left out".to_owned());
            return Ok(());
        }
        let mut schema = match json.get("schema") {
            Some(schema) => schemas.convert(schema)?,
            None => Value::Bool(true),
        };
        if let (Some(text), Value::Object(members)) = (text(body, "description"), &mut schema) {
            members.entry("description").or_insert_with(|| text.into());
        }
        let name = ["body", "requestBody", "request_body"]
            .into_iter()
            .find(|name| !arguments.properties.contains_key(*name))
            .ok_or("all names for its body are taken by parameters")?;
        arguments.add(name, schema, is_required, "body");
        Ok(())
    }

    /// The schema of the first successful JSON reply.
    fn output(&self, notes: &mut Vec<String>) -> Option<Value> {
        let responses = self.operation.get("responses")?.as_object()?;
        let successful = |status: &&String| status.starts_with('2');
        let status = responses.keys().find(successful)?;
        let response = self.source.resolve(&responses[status])?;
        let content = response.get("content")?.as_object()?;
        let (_, json) = content.iter().find(|(media, _)| is_json(media))?;
        let schema = json.get("schema")?;
        let mut schemas = Schemas::of_output(self.source);
        match schemas.convert(schema) {
            Ok(Value::Object(mut output)) => {
                schemas.finish(&mut output, notes);
                Some(Value::Object(output))
            }
            Ok(_) => None,
            Err(text) => {
                notes.push(format!("no outputSchema: {text}"));
                None
            }
        }
    }

    /// The security schemes that a call needs, with their kinds.
    pub(super) fn security_schemes(&self) -> BTreeSet<String> {
        let own = self.operation.get("security");
        let asked = own.or_else(|| self.source.document.get("security"));
        let names = asked.and_then(Value::as_array).into_iter().flatten();
        let names = names.filter_map(Value::as_object).flat_map(Map::keys);
        names
            .map(|name| {
                let at = self.source.document.get("components");
                let scheme = at.and_then(|all| all.get("securitySchemes")?.get(name));
                let kind = scheme.and_then(|scheme| text(scheme, "type"));
                format!("{name}: {}", kind.unwrap_or("unknown"))
            })
            .collect()
    }
}

/// `application/json`, with parameters or not, and `application/*+json`.
fn is_json(media: &str) -> bool {
    let essence = media.split(';').next().unwrap_or_default().trim();
    let essence = essence.to_ascii_lowercase();
    essence == "application/json" || essence == "*/*" || essence.ends_with("+json")
}
