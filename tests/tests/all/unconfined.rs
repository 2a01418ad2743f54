//! So does the Local provider without isolation, where paths are translated.

sandgate_tests::conformance_suite!(sandgate_tests::support::Kind::LocalUnconfined);
