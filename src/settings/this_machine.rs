//! Addresses of this machine, which no proxy of the environment can reach.

/// Whether an address names this machine.
pub fn is_this_machine(address: &str) -> bool {
    let Ok(address) = reqwest::Url::parse(address) else { return false };
    let host = address.host_str().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_owned();
    let is_loopback = host.parse().is_ok_and(|ip: std::net::IpAddr| ip.to_canonical().is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_is_this_machine() {
        for here in [
            "http://127.0.0.1:8000",
            "http://[::1]:8000/",
            "http://localhost",
            "https://LOCALHOST.:1",
            "http://127.9.9.9",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert!(is_this_machine(here), "{here}");
        }
        for there in [
            "http://10.0.0.1",
            "http://localhost.example.org",
            "http://127.0.0.1.example.org",
            "http://[2001:db8::1]",
            "",
            "runner",
        ] {
            assert!(!is_this_machine(there), "{there}");
        }
    }
}
