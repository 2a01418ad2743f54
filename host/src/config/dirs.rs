//! The gateway's own folders.

use std::path::{Path, PathBuf};

use super::Config;
use super::resolve::Lookup;

/// A folder of the XDG base directory specification; none without a home.
pub(super) fn base(lookup: Lookup<'_>, variable: &str, below_home: &str) -> Option<PathBuf> {
    // The specification wants relative paths ignored.
    let absolute = |name| lookup(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| absolute("HOME").map(|home| home.join(below_home)))
}

/// Fills in the folders that the file leaves open.
pub(super) fn fill(config: &mut Config, lookup: Lookup<'_>) {
    let gateway = &mut config.gateway;
    gateway.state_dir.get_or_insert_with(|| {
        base(lookup, "XDG_DATA_HOME", ".local/share").unwrap_or_else(|| "/var/lib".into()).join("sandgate")
    });
    gateway.cache_dir.get_or_insert_with(|| {
        base(lookup, "XDG_CACHE_HOME", ".cache").unwrap_or_else(|| "/var/cache".into()).join("sandgate")
    });
}

impl Config {
    /// Where users' files and the gateway's records are.
    pub fn state_dir(&self) -> PathBuf {
        self.filled(|config| config.gateway.state_dir.clone())
    }

    /// Where compiled components are kept.
    pub fn cache_dir(&self) -> PathBuf {
        self.filled(|config| config.gateway.cache_dir.clone())
    }

    fn filled(&self, folder: impl Fn(&Self) -> Option<PathBuf>) -> PathBuf {
        folder(self)
            .or_else(|| {
                // Only a configuration that was made in code gets here: loading fills both in.
                let mut config = Self { gateway: self.gateway.clone(), ..Self::default() };
                fill(&mut config, &|name| std::env::var_os(name));
                folder(&config)
            })
            .unwrap_or_else(|| Path::new("/var/lib/sandgate").to_path_buf())
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::fixed;
    use super::*;

    fn dirs(list: &'static [(&'static str, &'static str)]) -> (String, String) {
        let mut config = Config::default();
        fill(&mut config, &fixed(list));
        (config.state_dir().display().to_string(), config.cache_dir().display().to_string())
    }

    #[test]
    fn folders_follow_xdg_then_home_then_the_system() {
        let expected = |state: &str, cache: &str| (state.to_owned(), cache.to_owned());
        assert_eq!(
            dirs(&[("XDG_DATA_HOME", "/d"), ("XDG_CACHE_HOME", "/c"), ("HOME", "/h")]),
            expected("/d/sandgate", "/c/sandgate")
        );
        assert_eq!(
            dirs(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]),
            expected("/h/.local/share/sandgate", "/h/.cache/sandgate")
        );
        assert_eq!(dirs(&[("HOME", "")]), expected("/var/lib/sandgate", "/var/cache/sandgate"));
    }
}
