//! Which addresses may be connected to: public ones, and those that a setting names.
use super::{FetchError, Url};
use crate::settings::AllowedTarget;
use async_trait::async_trait;
use ipnet::IpNet;
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::LazyLock,
};

/// Finds the addresses of a host.
#[async_trait]
pub trait Lookup: Send + Sync {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The lookup of the operating system.
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn addresses(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// The networks that are not public, by IANA's registries of special addresses.
static NOT_PUBLIC: LazyLock<Vec<IpNet>> = LazyLock::new(|| {
    let networks = [
        // This network, private use, the providers' shared one, loopback and link-local.
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.168.0.0/16",
        // Protocol assignments, documentation, the relay of 6to4, benchmarks, multicast and what is reserved.
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        // Within the global unicast addresses: Teredo and other protocols, documentation, 6to4.
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
    ];
    networks.into_iter().filter_map(|network| network.parse().ok()).collect()
});

/// Outside of this network, an IPv6 address is local, mapped or translated from IPv4, multicast or not assigned.
static GLOBAL_V6: LazyLock<Option<IpNet>> = LazyLock::new(|| "2000::/3".parse().ok());

pub fn is_public(address: IpAddr) -> bool {
    let is_global = address.is_ipv4() || GLOBAL_V6.is_some_and(|network| network.contains(&address));
    is_global && !NOT_PUBLIC.iter().any(|network| network.contains(&address))
}

/// The addresses of the URL's host that may be connected to; an error if there is none.
pub async fn checked(lookup: &dyn Lookup, allowed: &[AllowedTarget], url: &Url) -> Result<Vec<SocketAddr>, FetchError> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    let addresses = match host.trim_matches(['[', ']']).parse() {
        Ok(address) => vec![address],
        Err(_) => match lookup.addresses(host).await {
            Ok(addresses) if !addresses.is_empty() => addresses,
            _ => return Err(FetchError::unresolved(url)),
        },
    };
    let may =
        |address: &IpAddr| is_public(*address) || allowed.iter().any(|target| target.covers(host, port, *address));
    let addresses: Vec<_> = addresses.into_iter().filter(may).map(|address| SocketAddr::new(address, port)).collect();
    if addresses.is_empty() { Err(FetchError::forbidden(url)) } else { Ok(addresses) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for public in ["1.1.1.1", "93.184.216.34", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "2a00:1450::1"] {
            assert!(is_public(public.parse().unwrap()), "{public}");
        }
        for other in [
            "0.0.0.0",
            "0.1.2.3",
            "10.1.2.3",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.0.1",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.8",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.250",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:1.1.1.1",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::1",
            "3fff::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(other.parse().unwrap()), "{other}");
        }
    }
}
