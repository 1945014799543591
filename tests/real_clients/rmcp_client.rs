//! The Rust SDK's client, in this process: what modes `visit` and `asked` of the drivers do
//! (`tests/peers`).
#![expect(
    deprecated,
    reason = "sampling and roots are deprecated from 2026-07-28 on, yet still asked for"
)]

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, ErrorData, RoleClient,
    model::{
        CallToolRequestParams, ClientConfig, CreateMessageRequestParams, CreateMessageResult,
        ElicitRequestParams, ElicitResult, GetPromptRequestParams, ListRootsResult,
        ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    },
    service::{NotificationContext, RequestContext, RunningService},
    transport::StreamableHttpClientTransport,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{eras::Era, support::PATIENCE};

/// What a server has to offer, by its name.
const OFFERS: &str = include_str!("../peers/visit.json");

/// A client that remembers the progress it was told, and answers as `tour.mjs` does.
struct Visitor(watch::Sender<Vec<f64>>);

/// It, connected.
type Met = RunningService<RoleClient, Visitor>;

/// A message in the words of the wire.
fn from<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl ClientHandler for Visitor {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = from(json!({"elicitation": {}, "roots": {}, "sampling": {}}));
        info
    }

    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.0.send_modify(|progress| progress.push(told.progress));
    }

    async fn create_message(
        &self,
        asked: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        let asked = json!(asked);
        let question = match &asked["messages"][0]["content"] {
            Value::Array(blocks) => &blocks[0]["text"],
            block => &block["text"],
        };
        let text = format!("heard: {}", question.as_str().unwrap());
        Ok(from(json!({"role": "assistant", "model": "tour",
            "content": {"type": "text", "text": text}})))
    }

    async fn create_elicitation(
        &self,
        _asked: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let content = json!({"name": "Ann Tour", "color": "blue"});
        Ok(from(json!({"action": "accept", "content": content})))
    }

    async fn list_roots(
        &self,
        _context: RequestContext<RoleClient>,
    ) -> Result<ListRootsResult, ErrorData> {
        Ok(from(
            json!({"roots": [{"uri": "file:///tour", "name": "tour"}]}),
        ))
    }
}

/// Lists, calls with progress, reads and gets at the places of `at`, `NAME=PREFIX,...`, behind one
/// endpoint.
pub(crate) fn visit(era: Era, url: &str, at: &str) {
    go(era, url, at, visit_at);
}

/// Calls the tools there that ask the client.
pub(crate) fn answer(era: Era, url: &str, at: &str) {
    go(era, url, at, answer_at);
}

fn go(era: Era, url: &str, at: &str, at_one: impl AsyncFn(&Met, &Value, &str)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let all = async {
        let client = meet(era, url).await;
        let offers: Value = serde_json::from_str(OFFERS).unwrap();
        for place in at.split(',') {
            let (name, prefix) = place.split_once('=').unwrap();
            at_one(&client, &offers[name], prefix).await;
        }
        client.cancel().await.unwrap();
    };
    let in_time = async { tokio::time::timeout(PATIENCE, all).await };
    runtime.block_on(in_time).expect("it ends in time");
}

async fn meet(era: Era, url: &str) -> Met {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match era {
        Era::Legacy => ClientLifecycleMode::Initialize,
        Era::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: None,
        },
        Era::Modern => ClientLifecycleMode::Discover { preferred_versions },
    };
    let transport = StreamableHttpClientTransport::from_uri(url);
    let visitor = Visitor(watch::Sender::new(Vec::new()));
    visitor
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .unwrap()
}

async fn answer_at(client: &Met, offer: &Value, prefix: &str) {
    for asking in offer["asking"].as_array().unwrap() {
        let tool = format!("{prefix}{}", asking["tool"].as_str().unwrap());
        let arguments = asking["arguments"].as_object().unwrap().clone();
        let call = CallToolRequestParams::new(tool).with_arguments(arguments);
        let said = json!(client.call_tool(call).await.unwrap().content).to_string();
        for part in asking["says"].as_array().unwrap() {
            assert!(said.contains(part.as_str().unwrap()), "{part}: {said}");
        }
    }
}

async fn visit_at(client: &Met, offer: &Value, prefix: &str) {
    let exposed = |kind: &str| format!("{prefix}{}", offer[kind].as_str().unwrap());
    let (tool, uri, prompt) = (exposed("tool"), exposed("resource"), exposed("prompt"));
    let visitor = client.service();
    let mut heard = visitor.0.subscribe();

    let tools = client.list_all_tools().await.unwrap();
    assert!(tools.iter().any(|one| one.name == tool), "{tool}");
    let resources = client.list_all_resources().await.unwrap();
    assert!(resources.iter().any(|one| one.uri == uri), "{uri}");
    let prompts = client.list_all_prompts().await.unwrap();
    assert!(prompts.iter().any(|one| one.name == prompt), "{prompt}");

    let arguments = offer["arguments"].as_object().unwrap().clone();
    let call = CallToolRequestParams::new(tool).with_arguments(arguments);
    let called = json!(client.call_tool(call).await.unwrap());
    assert_eq!(called["content"][0]["text"], offer["answer"], "{called}");
    let progress: Vec<f64> = serde_json::from_value(offer["progress"].clone()).unwrap();
    // It is told on tasks of their own, which may come after the result.
    heard
        .wait_for(|told| told.len() >= progress.len())
        .await
        .unwrap();
    let mut told = visitor.0.send_replace(Vec::new());
    told.sort_by(f64::total_cmp);
    assert_eq!(told, progress);

    let read = ReadResourceRequestParams::new(uri.as_str());
    let read = json!(client.read_resource(read).await.unwrap());
    assert_eq!(read["contents"][0]["uri"], uri.as_str(), "{read}");
    assert!(read["contents"][0]["text"].is_string(), "{read}");
    let get = GetPromptRequestParams::new(prompt);
    let prompted = json!(client.get_prompt(get).await.unwrap());
    let text = &prompted["messages"][0]["content"]["text"];
    assert_eq!(*text, offer["message"], "{prompted}");
}
