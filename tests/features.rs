//! This program is empty. Where cargo builds it, cargo selects the features of dependencies that the tests use, so that `make
//! run` and `make test` share every compiled dependency.
