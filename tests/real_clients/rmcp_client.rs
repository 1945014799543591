//! The Rust SDK's client, in this process: what `--mode visit` of the drivers does (`tests/peers`).

use std::sync::Arc;

use rmcp::{
    ClientHandler, ClientLifecycleMode, ClientServiceExt, RoleClient,
    model::{
        CallToolRequestParams, GetPromptRequestParams, ProgressNotificationParam, ProtocolVersion,
        ReadResourceRequestParams,
    },
    service::NotificationContext,
    transport::StreamableHttpClientTransport,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{eras::Era, support::PATIENCE};

/// What a server has to offer, by its name.
const OFFERS: &str = include_str!("../peers/visit.json");

/// A client that remembers the progress it was told.
#[derive(Clone)]
struct Visitor(Arc<watch::Sender<Vec<f64>>>);

impl ClientHandler for Visitor {
    async fn on_progress(
        &self,
        told: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.0.send_modify(|progress| progress.push(told.progress));
    }
}

/// Visits the places of `at`, `NAME=PREFIX,...`, behind one endpoint.
pub(crate) fn visit(era: Era, url: &str, at: &str) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let visited = async { tokio::time::timeout(PATIENCE, visit_all(era, url, at)).await };
    runtime.block_on(visited).expect("it ends in time");
}

async fn visit_all(era: Era, url: &str, at: &str) {
    let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match era {
        Era::Legacy => ClientLifecycleMode::Initialize,
        Era::Auto => ClientLifecycleMode::Auto {
            preferred_versions,
            legacy_version: None,
        },
        Era::Modern => ClientLifecycleMode::Discover { preferred_versions },
    };
    let offers: Value = serde_json::from_str(OFFERS).unwrap();
    let visitor = Visitor(Arc::new(watch::Sender::new(Vec::new())));
    let mut heard = visitor.0.subscribe();
    let transport = StreamableHttpClientTransport::from_uri(url);
    let client = visitor
        .clone()
        .serve_with_lifecycle(transport, lifecycle)
        .await
        .unwrap();
    for place in at.split(',') {
        let (name, prefix) = place.split_once('=').unwrap();
        let offer = &offers[name];
        let exposed = |kind: &str| format!("{prefix}{}", offer[kind].as_str().unwrap());
        let (tool, uri, prompt) = (exposed("tool"), exposed("resource"), exposed("prompt"));

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
    client.cancel().await.unwrap();
}
