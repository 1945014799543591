//! `shardgate token mint`: a token for trying the gateway out.

use std::process::ExitCode;

use shards::clock::unix_s;

use crate::{
    auth::{MintRequest, SignatureAlgorithm, SigningKey, load_or_create_secret, mint},
    command::{complain, print_notes, refuse, refuse_lines, say},
    settings::{Algorithm, Environment, Flags, Purpose, Settings, TokenAction},
};

/// Name of the generated secret in the state folder.
pub(crate) const GENERATED_SECRET: &str = "token.key";

/// Mints a token on standard output. Without a configured key, a secret is generated in the state
/// folder on first use, and the operator is told how to serve with it.
pub(crate) fn run(action: &TokenAction, flags: &Flags, environment: &Environment) -> ExitCode {
    let TokenAction::Mint {
        subject,
        email,
        lifetime,
        algorithm,
    } = action;
    let (settings, notes) = match Settings::load(flags, environment, Purpose::Token) {
        Ok(loaded) => loaded,
        Err(faults) => return refuse(&faults),
    };
    print_notes(&notes);
    let (key, default) = match key(&settings) {
        Ok(found) => found,
        Err(fault) => return refuse_lines([fault]),
    };
    let algorithm = match algorithm {
        Some(algorithm) => signature_algorithm(*algorithm),
        None => default,
    };
    let request = MintRequest {
        lifetime_s: lifetime.as_secs(),
        issuer: &settings.auth.issuer,
        audience: &settings.auth.audience,
        ..MintRequest::bootstrap(
            subject,
            email.as_deref().unwrap_or(subject),
            algorithm,
            &key,
        )
    };
    match mint(&request, unix_s()) {
        Ok(token) => {
            say(token);
            ExitCode::SUCCESS
        }
        Err(fault) => refuse_lines([fault.to_string()]),
    }
}

fn key(settings: &Settings) -> Result<(SigningKey, SignatureAlgorithm), String> {
    if let Some(path) = &settings.auth.signing_key {
        let key = SigningKey::read_rsa_private_pem(path).map_err(|fault| fault.to_string())?;
        return Ok((key, SignatureAlgorithm::Rs256));
    }
    let secret = match &settings.auth.secret {
        Some(secret) => secret.bytes().to_vec(),
        None => {
            let path = settings.state_dir.join(GENERATED_SECRET);
            let is_new = !path.exists();
            let secret = std::fs::create_dir_all(&settings.state_dir)
                .and_then(|()| load_or_create_secret(&path))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            if is_new {
                complain(format_args!(
                    "note: a secret was made; serve with \
                     --token-verification-secret file:{} to accept these tokens",
                    path.display()
                ));
            }
            secret
        }
    };
    let key = SigningKey::from_secret(&secret).map_err(|fault| fault.to_string())?;
    Ok((key, SignatureAlgorithm::Hs256))
}

fn signature_algorithm(algorithm: Algorithm) -> SignatureAlgorithm {
    match algorithm {
        Algorithm::Hs256 => SignatureAlgorithm::Hs256,
        Algorithm::Hs384 => SignatureAlgorithm::Hs384,
        Algorithm::Hs512 => SignatureAlgorithm::Hs512,
        Algorithm::Rs256 => SignatureAlgorithm::Rs256,
        Algorithm::Rs384 => SignatureAlgorithm::Rs384,
        Algorithm::Rs512 => SignatureAlgorithm::Rs512,
    }
}
