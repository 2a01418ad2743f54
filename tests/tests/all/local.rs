//! The Local provider in namespaces holds what any provider must hold.

sandgate_tests::conformance_suite!(sandgate_tests::support::Kind::Local);
