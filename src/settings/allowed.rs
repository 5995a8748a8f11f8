//! Addresses that the service may call although they are not public.
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

/// A host with its port, or a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AllowedTarget {
    /// The host is a name in lower case or an IP address, written as in a URL.
    Host {
        host: String,
        port: u16,
    },
    Network(IpNet),
}

impl AllowedTarget {
    pub(super) fn parse(text: &str) -> Option<AllowedTarget> {
        if let Some(network) = text.parse().ok().or_else(|| text.parse().ok().map(|ip: IpAddr| ip.into())) {
            return Some(AllowedTarget::Network(network));
        }
        let (host, port) = text.rsplit_once(':')?;
        let is_name = !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c));
        let is_v6 = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let fits = is_name || is_v6.is_some_and(|host| host.parse::<IpAddr>().is_ok());
        fits.then_some(AllowedTarget::Host { host: host.to_ascii_lowercase(), port: port.parse().ok()? })
    }

    /// Whether a URL with this host and port, which leads to this address, is allowed.
    pub fn covers(&self, host: &str, port: u16, address: IpAddr) -> bool {
        match self {
            AllowedTarget::Host { host: allowed, port: allowed_port } => allowed == host && *allowed_port == port,
            AllowedTarget::Network(network) => network.contains(&address),
        }
    }
}

impl fmt::Display for AllowedTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllowedTarget::Host { host, port } => write!(f, "{host}:{port}"),
            AllowedTarget::Network(network) => write!(f, "{network}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_with_its_port_or_a_network() {
        let parse = |text| AllowedTarget::parse(text).unwrap_or_else(|| panic!("{text}"));
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let host = parse("Wiki.internal:8080");
        assert!(host.covers("wiki.internal", 8080, here));
        assert!(!host.covers("wiki.internal", 80, here) && !host.covers("other.internal", 8080, here));
        assert!(parse("127.0.0.1:80").covers("127.0.0.1", 80, here));
        assert!(parse("[::1]:80").covers("[::1]", 80, "::1".parse().unwrap()));
        for network in ["127.0.0.0/8", "127.0.0.1"] {
            assert!(parse(network).covers("any.example.org", 80, here), "{network}");
            assert!(!parse(network).covers("any.example.org", 80, "10.0.0.1".parse().unwrap()), "{network}");
        }
        for bad in ["", "wiki.internal", "a b:80", "http://wiki:80", "wiki:99999", "*:80", "10.0.0.0/33", ":80"] {
            assert_eq!(AllowedTarget::parse(bad), None, "{bad}");
        }
        for text in ["wiki.internal:8080", "10.1.0.0/16", "[::1]:80"] {
            assert_eq!(parse(text).to_string(), text);
        }
    }
}
