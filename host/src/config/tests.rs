//! What operators get to see: messages, precedence, redaction.

use std::fs;
use std::path::Path;

use super::load::{fixed, load_with, parse_with};
use super::*;
use crate::error::Code;

const MINIMAL: &str = "default_provider = \"local\"\n[providers.local]\ncomponent = \"builtin:local\"\n";

fn read(text: &str) -> crate::Result<Loaded> {
    let lookup = fixed(&[("HOME", "/h"), ("API_KEY", "sk-very-secret"), ("PICK", "other"), ("PROVIDERS", "/opt/p")]);
    parse_with(text, Some(Path::new("sandgate.toml")), &lookup)
}

/// The message for a file that begins like [`MINIMAL`].
fn complaint(rest: &str) -> String {
    let error = read(&format!("{MINIMAL}{rest}")).unwrap_err();
    assert_eq!(error.code(), Code::Config);
    error.to_string()
}

#[track_caller]
fn says(rest: &str, expected: &str) {
    assert_eq!(complaint(rest), format!("sandgate.toml, {expected}"));
}

#[test]
fn a_minimal_file_grants_nothing() {
    let config = read(MINIMAL).unwrap().config;
    assert_eq!(config.providers[0].grants, Grants::default());
    assert_eq!(config.providers[0].lifecycle, LifecycleConfig::default());
    assert_eq!(config.ownership, None);
    assert_eq!(config.state_dir(), Path::new("/h/.local/share/sandgate"));
}

#[test]
fn an_unknown_key_gets_the_nearest_known_one() {
    says(
        "[engine]\nmemroy_limit_mib = 5\n",
        "line 5, column 1: engine.memroy_limit_mib: unknown key; did you mean \"memory_limit_mib\"?",
    );
    says(
        "[providers.local.grants.proces]\n",
        "line 4, column 25: providers.local.grants.proces: unknown key; did you mean \"process\"?",
    );
    let text = complaint("[gateway]\nzzz = 1\n");
    assert!(text.ends_with("unknown key; the keys here are cache_dir, deployment, state_dir"), "{text}");
}

#[test]
fn a_key_in_the_wrong_table_is_told_where_it_belongs() {
    let text = complaint("timeout_seconds = 5\n");
    assert!(text.contains("\"timeout_seconds\" belongs to [providers.NAME.grants.process]"), "{text}");
}

#[test]
fn values_of_the_wrong_kind_are_named() {
    says(
        "[engine]\nqueue = \"many\"\n",
        "line 5, column 9: engine.queue: expected a whole number, found \"many\"; write a number without quotes and unit",
    );
    says(
        "mounts = 5\n",
        "line 4, column 1: providers.local.mounts: unknown key; \"mounts\" belongs to the top of the file; the keys here are component, grants, lifecycle, settings, sha256",
    );
    says(
        "[providers.local.grants]\nprocess = true\n",
        "line 5, column 11: providers.local.grants.process: expected a table, found true; write a table: [name] or { key = value }",
    );
}

#[test]
fn ranges_are_checked_and_said() {
    says("[engine]\nmax_instances = 0\n", "line 5, column 17: engine.max_instances: 0 is out of range; use 1 to 10000");
    for bad in ["-1", "4097", "99999999999999999999"] {
        let text = complaint(&format!("[engine]\nmemory_limit_mib = {bad}\n"));
        assert!(text.contains(&format!("{bad} is out of range; use 1 to 4096")), "{text}");
    }
    assert!(read(&format!("{MINIMAL}[engine]\nqueue = 0\n")).is_ok());
    let text = complaint("[providers.local.grants.process]\nprograms = []\n");
    assert!(text.contains("process.programs: the list is empty; name at least 1"), "{text}");
}

#[test]
fn enumerations_list_what_is_possible() {
    says(
        "[engine]\npooling = \"atuo\"\n",
        "line 5, column 11: engine.pooling: \"atuo\" is not possible here; did you mean \"auto\"? Possible are \"auto\", \"on\", \"off\"",
    );
    says(
        "[environment]\nmode = \"deny_list\"\n",
        "line 5, column 8: environment.mode: \"deny_list\" is not possible here; did you mean \"deny-list\"? Possible are \"deny-list\", \"allow-list\"",
    );
    says(
        "[ownership]\ntype = \"etcd\"\n",
        "line 5, column 8: ownership.type: \"etcd\" is not possible here; possible are \"memory\", \"redis\"",
    );
}

#[test]
fn several_problems_come_together_in_the_order_of_the_file() {
    let text = read("default_provider = \"locl\"\n[engine]\nqueue = -1\ncpus = 3\n[providers.local]\n")
        .unwrap_err()
        .to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "3 problems in sandgate.toml", "{text}");
    assert_eq!(lines[1], "  line 3, column 9: engine.queue: -1 is out of range; use 0 to 100000");
    assert!(lines[2].starts_with("  line 4, column 1: engine.cpus: unknown key"), "{text}");
    assert_eq!(
        lines[3],
        "  line 5, column 12: providers.local: the key \"component\" is missing; for example component = \"builtin:local\""
    );
}

#[test]
fn a_file_that_is_not_toml_says_where() {
    let text = read("default_provider = \"local\"\n[engine\nqueue = = 3\n").unwrap_err().to_string();
    assert!(text.contains("line 2") && text.contains("not TOML"), "{text}");
}

#[test]
fn the_default_provider_has_to_exist() {
    let text = read(&MINIMAL.replacen("local", "locla", 1)).unwrap_err().to_string();
    assert_eq!(
        text,
        "sandgate.toml, line 1, column 20: default_provider: there is no provider \"locla\"; did you mean \"local\"?"
    );
    let text = read(&MINIMAL.replacen("local", "e2b", 1)).unwrap_err().to_string();
    assert!(text.ends_with("the providers are local"), "{text}");
    assert!(read("").unwrap_err().to_string().contains("the key \"default_provider\" is missing"));
    let text = read("default_provider = \"a\"\n[providers]\n").unwrap_err().to_string();
    assert!(text.contains("at least one is needed"), "{text}");
}

#[test]
fn provider_names_components_and_pins_have_a_form() {
    let text = complaint("[providers.My_Provider]\ncomponent = \"a.wasm\"\n");
    assert!(
        text.contains("line 4, column 12: providers.My_Provider: the name \"My_Provider\" is not usable"),
        "{text}"
    );
    let text = complaint("sha256 = \"abc\"\n");
    assert!(
        text.contains("line 4, column 10: providers.local.sha256: \"abc\" does not have the right form; write 64 hex"),
        "{text}"
    );
    let text = complaint("[gateway]\ndeployment = \"My Team\"\n");
    assert!(text.contains("\"My Team\" does not have the right form; use 1 to 63 characters"), "{text}");
    for bad in ["", "builtin:", "builtin:../x", "oci://example.org/a:1", "https://example.org/a.wasm"] {
        let text = read(&MINIMAL.replace("builtin:local", bad)).unwrap_err().to_string();
        assert!(text.contains("line 3, column 13: providers.local.component"), "{text}");
    }
}

#[test]
fn relative_components_begin_at_the_folder_of_the_file() {
    let text = MINIMAL.replace("builtin:local", "providers/a.wasm");
    let loaded = parse_with(&text, Some(Path::new("/etc/sandgate/sandgate.toml")), &fixed(&[])).unwrap();
    assert_eq!(loaded.config.providers[0].component, ComponentSource::File("/etc/sandgate/providers/a.wasm".into()));
    let ComponentSource::File(path) = read(&text).unwrap().config.providers[0].component.clone() else { panic!() };
    assert_eq!(path, std::env::current_dir().unwrap().join("providers/a.wasm"));
}

#[test]
fn isolation_none_needs_consent_and_honesty() {
    let grant = "[providers.local.grants.process]\nisolation = \"none\"\n";
    let text = complaint(grant);
    assert!(
        text.contains("line 5, column 13") && text.contains("allow_unconfined_commands_on_this_host = true"),
        "{text}"
    );
    assert!(text.contains("process.network"), "{text}");
    let consent = format!("{MINIMAL}{grant}allow_unconfined_commands_on_this_host = true\nnetwork = true\n");
    assert!(read(&consent).is_ok());
}

#[test]
fn timeouts_fit_together() {
    let text = complaint("[providers.local.grants.process]\ntimeout_seconds = 60\nmax_timeout_seconds = 30\n");
    assert!(text.contains("60 is more than max_timeout_seconds, which is 30"), "{text}");
}

#[test]
fn mounts_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let host = folder.path().display().to_string();
    let mount = |host: &str, at: &str| format!("[[mounts]]\nhost_path = {host:?}\ncontainer_path = {at:?}\n");
    assert!(read(&format!("{MINIMAL}{}", mount(&host, "/mnt/data/"))).is_ok());

    let both = mount(&host, "/mnt/data/") + &mount(&host, "/mnt//data");
    let text = complaint(&both);
    assert!(text.contains("line 9, column 18: mounts[1].container_path: mounts[0] is at \"/mnt//data\" too"), "{text}");

    for (at, reason) in [
        ("mnt/data", "not absolute"),
        ("/mnt/../data", "\"..\""),
        ("/mnt/user-data", "/mnt/user-data, which is Sandgate's own"),
        ("/mnt/user-data/x", "Sandgate's own"),
        ("/mnt/skills/public", "Sandgate's own"),
        ("/mnt/skills/custom/x/", "Sandgate's own"),
        ("/mnt/acp-workspace", "Sandgate's own"),
        ("/mnt", "Sandgate's own"),
        ("/", "Sandgate's own"),
        ("/tmp/x", "Sandgate's own"),
    ] {
        let text = complaint(&mount(&host, at));
        assert!(text.contains("mounts[0].container_path") && text.contains(reason), "{at}: {text}");
    }
    assert!(read(&format!("{MINIMAL}{}", mount(&host, "/mnt/user-data-extra"))).is_ok());

    let text = complaint(&mount("/nowhere/at/all", "/mnt/data"));
    assert!(text.contains("there is no directory \"/nowhere/at/all\" on this host; make it (mkdir -p)"), "{text}");
    assert!(text.contains("container"), "{text}");
    assert!(complaint(&mount("data", "/mnt/data")).contains("\"data\" is not an absolute path"));
    assert!(complaint(&mount("/etc/hostname", "/mnt/data")).contains("is not a directory"));
}

#[test]
fn reserved_places_follow_the_skills() {
    let folder = tempfile::tempdir().unwrap();
    let mount = format!("[[mounts]]\nhost_path = {:?}\ncontainer_path = \"/opt/skills/public/x\"\n", folder.path());
    assert!(read(&format!("{MINIMAL}{mount}")).is_ok());
    let text = complaint(&format!("{mount}[skills]\ncontainer_path = \"/opt/skills/\"\n"));
    assert!(text.contains("overlaps /opt/skills/public"), "{text}");
    assert!(complaint("[skills]\ncontainer_path = \"/mnt/user-data/skills\"\n").contains("Sandgate's own"));
    assert!(complaint("[skills]\ndisabled = [\"ok\", \"secret/x\"]\n").contains("skills.disabled[1]: \"secret/x\""));
}

#[test]
fn no_mount_and_no_system_path_shows_other_users_files() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state/deep");
    fs::create_dir_all(&state).unwrap();
    std::os::unix::fs::symlink(&state, folder.path().join("link")).unwrap();
    for shown in
        [folder.path().to_path_buf(), state.clone(), folder.path().join("link"), state.parent().unwrap().into()]
    {
        let rest = format!(
            "[gateway]\nstate_dir = {state:?}\n[[mounts]]\nhost_path = {shown:?}\ncontainer_path = \"/mnt/data\"\n"
        );
        assert!(complaint(&rest).contains("overlaps gateway.state_dir"), "{}", shown.display());
    }
    // The state directory does not exist yet, and is reached through a link.
    let rest = format!(
        "[gateway]\nstate_dir = {:?}\n[providers.local.grants.process]\nsystem_paths = [{state:?}]\n",
        folder.path().join("link/later")
    );
    assert!(complaint(&rest).contains("system_paths[0]"));
}

#[test]
fn environment_patterns_are_names() {
    let text = complaint("[environment]\nallow = [\"LC_*\", \"A=B\"]\ndeny = [\"\"]\n");
    assert!(text.contains("environment.allow[1]: \"A=B\"") && text.contains("environment.deny[0]: \"\""), "{text}");
}

#[test]
fn settings_are_free_but_have_to_be_json() {
    let config = read(&format!("{MINIMAL}[providers.local.settings]\na = {{ b = [1, 2.5, true] }}\n")).unwrap().config;
    assert_eq!(config.providers[0].settings.expose_json(), r#"{"a":{"b":[1,2.5,true]}}"#);
    let text = complaint("[providers.local.settings]\nday = 2026-01-01\nx = inf\n");
    assert!(text.contains("settings.day: a date") && text.contains("settings.x: this number"), "{text}");
}

#[test]
fn variables_are_resolved_in_keys_and_settings() {
    let text = format!(
        "{}[providers.local.settings]\nkey = \"env:API_KEY\"\n",
        MINIMAL.replace("builtin:local", "$PROVIDERS/a.wasm")
    );
    let config = read(&text).unwrap().config;
    assert_eq!(config.providers[0].component, ComponentSource::File("/opt/p/a.wasm".into()));
    assert_eq!(config.providers[0].settings.expose()["key"], "sk-very-secret");
    assert!(!format!("{config:?}").contains("sk-very-secret"));
    says(
        "[providers.local.settings]\nkey = \"$MISSING\"\n",
        "line 5, column 7: providers.local.settings.key: the environment variable MISSING is not set; set MISSING in the gateway's environment, or write $$ if a plain $ was meant",
    );
}

#[test]
fn a_resolved_value_is_in_no_error() {
    let at = |before: &str, key: &str, value: &str| format!("{before}{key} = {value:?}\n");
    for text in [
        MINIMAL.replacen("\"local\"", "\"$API_KEY\"", 1),
        MINIMAL.replace("builtin:local", "$API_KEY://x"),
        at(MINIMAL, "sha256", "$API_KEY"),
        format!("{MINIMAL}[providers.local.lifecycle]\nreplicas = \"$API_KEY\"\n"),
        format!("{MINIMAL}[providers.local.lifecycle]\ncapacity_policy = \"$API_KEY\"\n"),
        format!("{MINIMAL}[ownership]\ntype = \"redis\"\nredis_url = \"$API_KEY\"\nkey_prefix = \"${{API_KEY}} \"\n"),
        format!(
            "{MINIMAL}[ownership]\ntype = \"redis\"\nredis_ca_file = \"/${{API_KEY}}\"\nkey_prefix = \"$API_KEY \"\n"
        ),
        format!("{MINIMAL}[engine]\npooling = \"$API_KEY\"\n"),
        format!("{MINIMAL}[gateway]\nstate_dir = \"$API_KEY\"\n"),
        format!("{MINIMAL}[gateway]\ndeployment = \"${{API_KEY}}_\"\n"),
        format!("{MINIMAL}[environment]\nallow = [\"env:API_KEY\"]\n"),
        format!("{MINIMAL}[skills]\ncontainer_path = \"$API_KEY\"\n"),
        format!("{MINIMAL}[skills]\ndisabled = [\"$API_KEY/x\"]\n"),
        format!("{MINIMAL}[[mounts]]\nhost_path = \"$API_KEY\"\ncontainer_path = \"$API_KEY\"\n"),
        format!("{MINIMAL}[providers.local.grants.process]\nprograms = [\"$API_KEY/x\"]\n"),
    ] {
        let error = read(&text).unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("very-secret"), "{shown}");
        assert!(shown.contains("API_KEY"), "{shown}");
    }
}

#[test]
fn the_effective_configuration_shows_no_secret() {
    let text = format!(
        "{MINIMAL}[providers.local.settings]\nendpoint = \"https://example.org\"\nfrom_env = \"$API_KEY\"\n\
         api_key = \"literal-secret\"\nnested = {{ passwords = [\"literal-secret\"], pin_token = 987650 }}\n\
         database_url = \"postgres://u:literal-secret@h\"\npwd = \"literal-secret\"\nlist = [\"literal-secret\", 7171]\n\
         port = 5432\nfast = true\n"
    );
    let loaded = read(&text).unwrap();
    let shown = loaded.effective().unwrap();
    assert!(!shown.contains("very-secret") && !shown.contains("literal-secret"), "{shown}");
    assert!(shown.contains("from_env = \"$API_KEY\"") && shown.contains("api_key = \"[redacted]\""), "{shown}");
    assert!(shown.contains("# From sandgate.toml\n") && shown.contains("queue = 1024"), "{shown}");
    assert!(!shown.contains("example.org") && !shown.contains("987650"), "{shown}");
    for part in ["endpoint = \"[redacted]\"", "pwd = \"[redacted]\"", "7171", "port = 5432", "fast = true"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert!(shown.contains("state_dir = \"/h/"), "{shown}");
    let json = loaded.effective_json().unwrap();
    assert!(!json.to_string().contains("-secret"), "{json}");
    assert_eq!(json["providers"]["local"]["settings"]["port"], 5432);
    assert_eq!(json["engine"]["queue"], 1024);
}

#[test]
fn what_is_printed_can_be_read_again() {
    let loaded = read(init()).unwrap();
    assert_eq!(read(&loaded.effective().unwrap()).unwrap().config, loaded.config);
}

#[test]
fn files_are_found_in_order_and_named_ones_have_to_exist() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, deployment: &str| {
        let path = folder.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("{MINIMAL}[gateway]\ndeployment = {deployment:?}\n")).unwrap();
        path
    };
    let (named, variable) = (write("named.toml", "named"), write("variable.toml", "variable"));
    let home = folder.path().join("home");
    let lookup = |with_variable: bool| {
        let (variable, home) = (variable.clone(), home.clone());
        move |name: &str| match name {
            "SANDGATE_CONFIG" if with_variable => Some(variable.clone().into_os_string()),
            "HOME" => Some(home.clone().into_os_string()),
            _ => None,
        }
    };
    let found = |named: Option<&Path>, with_variable| {
        load_with(named, folder.path(), &lookup(with_variable)).unwrap().config.gateway.deployment
    };
    assert_eq!(found(None, false), "sandgate", "no file: the built-in configuration");
    write("home/.config/sandgate/sandgate.toml", "user");
    assert_eq!(found(None, false), "user");
    write("sandgate.toml", "here");
    assert_eq!(found(None, false), "here");
    assert_eq!(found(None, true), "variable");
    assert_eq!(found(Some(&named), true), "named");

    fs::remove_file(&variable).unwrap();
    let error = load_with(None, folder.path(), &lookup(true)).unwrap_err().to_string();
    assert!(error.contains("variable.toml, which $SANDGATE_CONFIG names"), "{error}");
    fs::remove_file(&named).unwrap();
    let error = load_with(Some(&named), folder.path(), &lookup(false)).unwrap_err().to_string();
    assert!(error.contains("named.toml, which --config names") && error.contains("sandgate config init"), "{error}");
}

#[test]
fn files_that_are_no_text_or_endless_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    fs::write(&path, b"# one\n# \xff\n").unwrap();
    let error = load_with(Some(&path), folder.path(), &fixed(&[])).unwrap_err().to_string();
    assert!(error.contains("line 2: not UTF-8"), "{error}");
    let error = load_with(Some(Path::new("/dev/zero")), folder.path(), &fixed(&[])).unwrap_err().to_string();
    assert!(error.contains("larger than 1024 KiB"), "{error}");
    assert!(load_with(Some(folder.path()), folder.path(), &fixed(&[])).unwrap_err().to_string().contains("can't read"));
}

#[test]
fn the_ownership_section_needs_its_type() {
    let text = complaint("[ownership]\nredis_url = \"redis://h\"\n");
    assert!(text.contains("ownership: the key \"type\" is missing; for example type = \"redis\""), "{text}");
}

#[test]
fn keys_of_redis_do_not_go_with_memory() {
    says(
        "[ownership]\ntype = \"memory\"\nredis_url = \"redis://h\"\n",
        "line 6, column 1: ownership.redis_url: with type = \"memory\" nothing is kept in Redis; write type = \"redis\", or remove this key",
    );
    for key in ["redis_ca_file = \"/x\"", "key_prefix = \"a:b\""] {
        let text = complaint(&format!("[ownership]\ntype = \"memory\"\n{key}\n"));
        assert!(text.contains("write type = \"redis\", or remove this key"), "{text}");
    }
    let memory = "[ownership]\ntype = \"memory\"\nrenewal_interval_seconds = 1\nttl_multiplier = 2\n";
    let ownership = read(&format!("{MINIMAL}{memory}")).unwrap().config.ownership.unwrap();
    assert_eq!((ownership.renewal_interval_seconds, ownership.ttl_multiplier), (1, 2.0));
}

#[test]
fn a_lease_outlasts_its_renewals() {
    let with = |key: &str| format!("[ownership]\ntype = \"redis\"\n{key}\n");
    says(
        &with("ttl_multiplier = 1.5"),
        "line 6, column 18: ownership.ttl_multiplier: `ttl_multiplier` is 1.5; use 2 or more, so that one missed renewal does not cost a lease",
    );
    for (bad, hint) in [
        ("ttl_multiplier = 101", "101 is out of range; use 2 to 100"),
        ("ttl_multiplier = inf", "use 2 or more"),
        ("ttl_multiplier = \"4\"", "expected a number"),
        ("renewal_interval_seconds = 0", "0 is out of range; use 1 to 3600"),
    ] {
        let text = complaint(&with(bad));
        assert!(text.contains(hint) && !text.contains("problems"), "{text}");
    }
}

#[test]
fn a_redis_url_is_checked_and_never_shown() {
    let with = |keys: &str| format!("[ownership]\ntype = \"redis\"\n{keys}");
    let url = |url: &str| with(&format!("redis_url = {url:?}\n"));
    for bad in
        ["very-secret", "http://u:very-secret@h", "redis+sentinel://:very-secret@h", "redis://:very-secret/x@h:y"]
    {
        let text = complaint(&url(bad));
        assert!(text.contains("line 6, column 13: ownership.redis_url: this is not the URL of a Redis"), "{text}");
        assert!(text.contains("rediss://") && !text.contains("very-secret"), "{text}");
    }
    let text = complaint(&with("redis_url = { password = \"very-secret\" }\n"));
    assert!(text.contains("expected text, found a table") && !text.contains("very-secret"), "{text}");

    let loaded = read(&format!("{MINIMAL}{}", url("redis://:very-secret@h:1/2"))).unwrap();
    let given = loaded.config.ownership.as_ref().unwrap().redis_url.as_ref().unwrap();
    assert_eq!(given.expose(), "redis://:very-secret@h:1/2");
    let shown = format!("{loaded:?} {} {}", loaded.effective().unwrap(), loaded.effective_json().unwrap());
    assert!(!shown.contains("very-secret") && shown.contains("redis_url = \"[redacted]\""), "{shown}");
    assert_eq!(loaded.config.check(), Ok(()));

    let lookup = fixed(&[("HOME", "/h"), ("MY_REDIS", "redis://:very-secret@h")]);
    for reference in ["$MY_REDIS", "${MY_REDIS}/3", "env:MY_REDIS"] {
        let loaded = parse_with(&format!("{MINIMAL}{}", url(reference)), None, &lookup).unwrap();
        let given = loaded.config.ownership.as_ref().unwrap().redis_url.clone().unwrap();
        assert!(given.expose().starts_with("redis://:very-secret@h"), "{reference}");
        let shown = loaded.effective().unwrap();
        assert!(!shown.contains("very-secret") && shown.contains(&format!("redis_url = {reference:?}")), "{shown}");
    }
}

#[test]
fn a_certificate_authority_is_read_and_goes_with_tls() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("ca.pem"), include_str!("test-ca.pem")).unwrap();
    fs::write(path("empty.pem"), "").unwrap();
    fs::write(path("broken.pem"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let with = |url: &str, file: &str| {
        let url = if url.is_empty() { String::new() } else { format!("redis_url = {url:?}\n") };
        format!("[ownership]\ntype = \"redis\"\n{url}redis_ca_file = {file:?}\n")
    };
    for url in ["", "rediss://h", "rediss+cluster://h"] {
        assert!(read(&format!("{MINIMAL}{}", with(url, &path("ca.pem")))).is_ok(), "{url}");
    }
    for url in ["redis://h", "unix:///x", "redis+cluster://h", "rediss+sentinel://h/main"] {
        let text = complaint(&with(url, &path("ca.pem")));
        assert!(text.contains("ownership.redis_ca_file: a certificate authority does not go with"), "{url}: {text}");
    }
    for (file, why) in [("none.pem", "can't be read"), ("empty.pem", "no certificate"), ("broken.pem", "not usable")] {
        let text = complaint(&with("rediss://h", &path(file)));
        assert!(text.contains("holds no usable certificate authority") && text.contains(why), "{text}");
    }
    assert!(complaint(&with("", "ca.pem")).contains("is not an absolute path"));
}

#[test]
fn key_prefixes_have_a_form() {
    for bad in ["", "::", "a b", "a{b}"] {
        let text = complaint(&format!("[ownership]\ntype = \"redis\"\nkey_prefix = {bad:?}\n"));
        assert!(text.contains(&format!("ownership.key_prefix: {bad:?} is not usable; use words")), "{text}");
    }
}

#[test]
fn keys_of_one_capacity_policy_do_not_go_with_another() {
    let with = |keys: &str| format!("[providers.local.lifecycle]\n{keys}\n");
    says(
        &with("capacity_policy = \"burst\""),
        "line 5, column 19: providers.local.lifecycle.capacity_policy: \"burst\" needs burst_limit; add burst_limit = 2, or use \"reject\"",
    );
    says(
        &with("burst_limit = 2"),
        "line 5, column 1: providers.local.lifecycle.burst_limit: only the policy \"burst\" looks at it; remove it, or write capacity_policy = \"burst\"",
    );
    for policy in ["soft", "reject", "burst"] {
        let burst = if policy == "burst" { "burst_limit = 1\n" } else { "" };
        let keys = format!("{burst}capacity_policy = {policy:?}\nacquire_timeout_seconds = 5");
        let text = complaint(&with(&keys));
        assert!(text.contains("acquire_timeout_seconds: only the policy \"wait\" looks at it"), "{text}");
    }
    for good in
        ["", "capacity_policy = \"wait\"\nacquire_timeout_seconds = 5", "capacity_policy = \"burst\"\nburst_limit = 1"]
    {
        assert!(read(&format!("{MINIMAL}{}", with(good))).is_ok(), "{good}");
    }
    let text = complaint(&with("capacity_policy = \"bust\""));
    assert!(text.contains("did you mean \"burst\"? Possible are \"soft\", \"wait\", \"reject\", \"burst\""), "{text}");
}

#[test]
fn lifecycle_ranges_are_checked() {
    for (key, least, most) in [
        ("idle_timeout_seconds", 0, 604_800),
        ("check_interval_seconds", 1, 3600),
        ("replicas", 1, 100_000),
        ("stop_timeout_seconds", 1, 3600),
        ("create_timeout_seconds", 1, 3600),
        ("shutdown_grace_seconds", 0, 3600),
    ] {
        let file = |value: i64| format!("[providers.local.lifecycle]\n{key} = {value}\n");
        for good in [least, most] {
            assert!(read(&format!("{MINIMAL}{}", file(good))).is_ok(), "{key} = {good}");
        }
        for bad in [least - 1, most + 1] {
            let text = complaint(&file(bad));
            assert!(text.contains(&format!("{bad} is out of range; use ")), "{text}");
        }
    }
}

#[test]
fn an_old_key_is_told_its_new_name() {
    says(
        "max_sandboxes = 7\n",
        "line 4, column 1: providers.local.max_sandboxes: unknown key; it is providers.local.lifecycle.replicas now",
    );
}

#[test]
fn a_configuration_made_in_code_is_checked_too() {
    let mut config = Config::default();
    assert_eq!(config.check(), Ok(()));
    config.engine.max_instances = 0;
    config.default_provider = "e2b".parse().unwrap();
    // A text that a file would have to escape.
    config.providers[0].grants.process.as_mut().unwrap().programs = vec!["$a/b".into()];
    let text = config.check().unwrap_err().to_string();
    assert!(text.starts_with("3 problems in the configuration"), "{text}");
    for part in ["engine.max_instances: 0 is out of range", "no provider \"e2b\"", "programs[0]: \"$a/b\""] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn mutated_files_never_panic() {
    let text = read(init()).unwrap().effective().unwrap();
    let text: Vec<char> = text.chars().collect();
    // A small generator of our own: the same texts in every run.
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as usize
    };
    let odd: Vec<char> = "=[]{}\"'#$.\n\\-0ä\u{0}".chars().collect();
    let mut refused = 0;
    for _ in 0..2_000 {
        let mut mutated = text.clone();
        for _ in 0..1 + next() % 3 {
            let at = next() % mutated.len();
            match next() % 3 {
                0 => mutated[at] = odd[next() % odd.len()],
                1 => mutated.insert(at, odd[next() % odd.len()]),
                _ => drop(mutated.remove(at)),
            }
        }
        if let Err(error) = read(&mutated.into_iter().collect::<String>()) {
            refused += 1;
            assert!(error.to_string().contains("sandgate.toml"), "{error}");
        }
    }
    assert!((200..1_950).contains(&refused), "{refused}");
}

#[test]
fn a_provider_is_found_by_name_or_by_default() {
    let config = Config::default();
    assert_eq!(config.provider(None).unwrap().0.as_str(), "local");
    assert_eq!(config.provider(Some("local")).unwrap().0.as_str(), "local");
    let error = config.provider(Some("locl")).unwrap_err();
    assert_eq!(error.code(), Code::UnknownProvider);
    assert_eq!(error.to_string(), "there is no provider \"locl\"; did you mean \"local\"?");
    assert!(config.provider(Some("")).unwrap_err().to_string().ends_with("the providers are local"));
}

#[test]
fn of_very_many_problems_the_first_are_shown() {
    let keys: String = (0..500).map(|number| format!("zz{number} = 1\n")).collect();
    let text = complaint(&format!("[engine]\n{keys}"));
    assert_eq!(text.lines().count(), 22);
    assert!(text.starts_with("500 problems") && text.ends_with("and 480 more"), "{text}");
}
