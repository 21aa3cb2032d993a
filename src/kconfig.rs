//! The running kernel's build configuration.
//!
//! Distributions keep it in different places, and libbpf looks in two of them only; without it
//! libbpf says nothing but "Invalid argument". Whoever finds the text here can hand it over.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// A kernel configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kconfig {
    /// Where it was found, relative to the root.
    pub path: String,
    /// Its text, as the kernel's build wrote it.
    pub text: String,
}

/// Where a kernel of this release may keep its configuration, best first, relative to the root.
pub fn places(release: &str) -> [String; 5] {
    [
        "proc/config.gz".to_string(),
        format!("boot/config-{release}"),
        format!("usr/lib/modules/{release}/config"),
        format!("lib/modules/{release}/config"),
        format!("lib/modules/{release}/build/.config"),
    ]
}

impl Kconfig {
    /// Finds the configuration of the kernel of this release below `root`; `None` if it is in none
    /// of the [`places`].
    pub fn find(root: &Path, release: &str) -> Option<Self> {
        places(release).into_iter().find_map(|path| {
            let mut file = File::open(root.join(&path)).ok()?;
            let mut text = String::new();
            if path.ends_with(".gz") {
                flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
            } else {
                file.read_to_string(&mut text).ok()?;
            }
            Some(Self { path, text })
        })
    }

    /// All options that are set, with their values as written (`y`, `m`, `"text"`, numbers).
    pub fn options(&self) -> BTreeMap<&str, &str> {
        let set = |line: &'_ str| !line.starts_with('#');
        self.text.lines().filter(|line| set(line)).filter_map(|line| line.split_once('=')).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debians_place_is_found_and_unset_options_are_absent() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Kconfig::find(root.path(), "7.3.4"), None);
        let dir = root.path().join("usr/lib/modules/7.3.4");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("config"), "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=\"x=y\"\n")
            .unwrap();
        let config = Kconfig::find(root.path(), "7.3.4").unwrap();
        assert_eq!(config.path, "usr/lib/modules/7.3.4/config");
        assert_eq!(
            config.options().into_iter().collect::<Vec<_>>(),
            [("CONFIG_B", "y"), ("CONFIG_C", "\"x=y\"")]
        );
    }

    #[test]
    fn a_compressed_one_is_unpacked() {
        use std::io::Write;
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let file = File::create(root.path().join("proc/config.gz")).unwrap();
        let mut gz = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
        gz.write_all(b"CONFIG_B=y\n").unwrap();
        gz.finish().unwrap();
        assert_eq!(Kconfig::find(root.path(), "any").unwrap().text, "CONFIG_B=y\n");
    }
}
