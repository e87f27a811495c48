//! The recorded answers of a device: reading and writing the file.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::id::Id;

/// The answers of an NVIDIA H200.
const BUILT_IN: &str = include_str!("../reference/h200.json");

/// The answers of OpenCL platforms, by name.
const PLATFORMS: [(&str, &str); 2] = [
    ("Portable Computing Language", include_str!("../reference/pocl.json")),
    ("NVIDIA CUDA", include_str!("../reference/nvidia-opencl.json")),
];

/// The answers of one device, and which device it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    pub device: String,
    pub driver: String,
    /// The CUDA version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<String>,
    /// The name of the OpenCL platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opencl: Option<String>,
    pub answers: BTreeMap<Id, String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReferenceError {
    #[error("failed to read the reference {}: {source}", .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} is not a reference: {source}", .path.display())]
    NotAReference { path: PathBuf, source: serde_json::Error },
    #[error("failed to write the record {}: {source}", .path.display())]
    Unwritable { path: PathBuf, source: io::Error },
}

impl Reference {
    pub fn built_in() -> Self {
        serde_json::from_str(BUILT_IN).expect("the built-in reference is valid")
    }

    /// Returns the answers of an OpenCL platform, if they are built in.
    pub fn for_platform(name: &str) -> Option<Self> {
        let (_, text) = PLATFORMS.iter().find(|(known, _)| *known == name)?;
        Some(serde_json::from_str(text).expect("the built-in reference is valid"))
    }

    pub fn read(path: &Path) -> Result<Self, ReferenceError> {
        let text = fs::read(path).map_err(|source| ReferenceError::Unreadable { path: path.to_owned(), source })?;
        serde_json::from_slice(&text).map_err(|source| ReferenceError::NotAReference { path: path.to_owned(), source })
    }
}

/// Writes a record to a temporary file, which replaces the final one only when it is complete.
#[derive(Debug)]
pub struct ReferenceWriter {
    path: PathBuf,
    partial: PathBuf,
    file: File,
}

impl ReferenceWriter {
    /// Fails here, before any experiment, if the folder is not writable.
    pub fn create(path: &Path) -> Result<Self, ReferenceError> {
        let unwritable = |source| ReferenceError::Unwritable { path: path.to_owned(), source };
        let name = path.file_name().ok_or_else(|| unwritable(io::ErrorKind::IsADirectory.into()))?;
        // An existing file is replaced at the end, so it must be a regular file: not a folder, a device or a link.
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(unwritable(io::Error::other("it exists and is not a regular file")));
        }
        let partial = path.with_file_name(format!(".{}.{}", name.to_string_lossy(), std::process::id()));
        let file = File::create_new(&partial).map_err(unwritable)?;
        Ok(Self { path: path.to_owned(), partial, file })
    }

    pub fn finish(mut self, reference: &Reference) -> Result<(), ReferenceError> {
        self.write(reference).map_err(|source| ReferenceError::Unwritable { path: self.path.clone(), source })
    }

    fn write(&mut self, reference: &Reference) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(reference)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.file.sync_all()?;
        fs::rename(&self.partial, &self.path)
    }
}

impl Drop for ReferenceWriter {
    fn drop(&mut self) {
        match fs::remove_file(&self.partial) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => eprintln!("warning: failed to remove {}: {error}", self.partial.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_built_in_is_one() {
        assert_eq!(Reference::built_in().device, "NVIDIA H200");
    }

    #[test]
    fn every_platform_built_in_names_itself() {
        for (name, _) in PLATFORMS {
            assert_eq!(Reference::for_platform(name).unwrap().opencl.as_deref(), Some(name));
        }
        assert_eq!(Reference::for_platform("nobody's"), None);
    }

    #[test]
    fn answers_are_written_in_the_order_of_their_numbers() {
        let answers = [(Id(0, 10, 1), "b".to_owned()), (Id(0, 2, 1), "a".to_owned())].into();
        let cuda = Some("13.0".to_owned());
        let reference = Reference { device: "d".to_owned(), driver: "1".to_owned(), cuda, opencl: None, answers };
        assert_eq!(
            serde_json::to_string(&reference).unwrap(),
            r#"{"device":"d","driver":"1","cuda":"13.0","answers":{"0.2.1":"a","0.10.1":"b"}}"#
        );
    }

    #[test]
    fn a_record_that_is_not_finished_leaves_the_older_one_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("freehold-record-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = folder.join("record.json");
        fs::write(&path, "older").unwrap();
        drop(ReferenceWriter::create(&path).unwrap());
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["record.json"]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "older");
        fs::remove_dir_all(&folder).unwrap();
    }
}
