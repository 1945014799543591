//! A Redis said as a URL: `redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE]`, with `rediss` for
//! TLS.

use super::{
    groups::{Redis, RedisConnection},
    secret::Secret,
};
use crate::schema::pointer::percent_decoded;

/// Redis' own port.
const PORT: u16 = 6379;

/// Reads a URL; the error says what is wrong and nothing of the URL, which has a password.
pub(super) fn parse(text: &str) -> Result<Redis, &'static str> {
    let url = url::Url::parse(text).map_err(|_| "is not a URL")?;
    let connection = match url.scheme() {
        "redis" => RedisConnection::PlainText,
        "rediss" => RedisConnection::SystemTls,
        _ => return Err("must begin with redis:// or rediss://"),
    };
    let host = url.host_str().filter(|host| !host.is_empty());
    let host = host.ok_or("names no host")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let decoded = |text| percent_decoded(text).ok_or("has a broken percent sequence");
    let password = match url.password() {
        Some(password) => Some(Secret::new(decoded(password)?.as_bytes())),
        None => None,
    };
    let username = decoded(url.username())?.into_owned();
    let database = url.path().trim_matches('/');
    let database = match database.is_empty() {
        true => 0,
        false => database
            .parse()
            .map_err(|_| "has a path that is no number of a database")?,
    };
    Ok(Redis {
        host: host.to_owned(),
        port: url.port().unwrap_or(PORT),
        connection,
        // A user name alone says nothing to Redis.
        username: (!username.is_empty() && password.is_some()).then_some(username),
        password,
        database,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_where_redis_is_and_how_to_get_in() {
        let redis = parse("redis://default:pass%3Aword@localhost:6380/2").unwrap();
        assert_eq!(
            (&*redis.host, redis.port, redis.database),
            ("localhost", 6380, 2)
        );
        assert_eq!(redis.username.as_deref(), Some("default"));
        assert_eq!(redis.password, Some(Secret::new("pass:word")));
        assert_eq!(redis.connection, RedisConnection::PlainText);
        let redis = parse("rediss://[::1]").unwrap();
        assert_eq!((&*redis.host, redis.port, redis.database), ("::1", 6379, 0));
        assert_eq!(redis.connection, RedisConnection::SystemTls);
        assert_eq!((redis.username, redis.password), (None, None));
        let redis = parse("redis://:p@r").unwrap();
        assert_eq!(
            (redis.username, redis.password),
            (None, Some(Secret::new("p")))
        );
        for wrong in [
            "",
            "localhost:6379",
            "http://r",
            "redis:///0",
            "redis://r/x",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
