//! Packages of Debian's, installed as this user where that is root, else through sudo.

use crate::command::{Failure, command, quiet};

pub(crate) fn install(packages: &[&str]) -> Result<(), Failure> {
    let names = packages.join(" ");
    println!("{names}: installed by apt-get");
    let script = format!(
        "sudo=$([ $(id -u) = 0 ] || echo sudo -n); $sudo apt-get update -qq && \
         $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends {names}"
    );
    quiet(&mut command("sh", &["-c", &script])).map_err(|failure| format!("install {names}: {failure}"))
}
