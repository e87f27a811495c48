//! Experiments on which images a driver accepts, and on its errors for the others (question 4).

use std::ffi::{CStr, CString, c_void};
use std::fs;

use freehold_driver::cuda::module::Options;
use freehold_driver::cuda::{CUjit_option, module};

use crate::answer_text::{choose, code};
use crate::experiment::{Answer, Experiment};
use crate::fixture::Fixture;
use crate::id::Id;
use crate::kernels::{DEFAULT, KERNELS, ONE, function, launch, load};

/// The first three lines of every text below.
const HEAD: &str = ".version 6.4\n.target sm_70\n.address_size 64\n";

pub(super) const EXPERIMENTS: &[Experiment] = &[
    Experiment { id: Id(4, 6, 1), did: "load no image", run: |b| of_pointer(b, std::ptr::null()) },
    Experiment { id: Id(4, 6, 2), did: "load garbage", run: |b| of_bytes(b, b"this is no image\n") },
    Experiment { id: Id(4, 6, 3), did: "load an empty text", run: |b| of_bytes(b, b"") },
    Experiment { id: Id(4, 6, 4), did: "load a text of blanks", run: |b| of_bytes(b, b"  \n\n") },
    Experiment {
        id: Id(4, 6, 5),
        did: "load a text of a version and a target, and nothing else",
        run: |b| of_bytes(b, HEAD.as_bytes()),
    },
    Experiment {
        id: Id(4, 6, 6),
        did: "load a text without a version",
        run: |b| of_bytes(b, b".target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 7),
        did: "load a text without a target",
        run: |b| of_bytes(b, b".version 6.4\n.address_size 64\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 8),
        did: "load a text of version 9.9",
        run: |b| of_bytes(b, b".version 9.9\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 9),
        did: "load a text of version 1.0",
        run: |b| of_bytes(b, b".version 1.0\n.target sm_10\n.visible .entry empty() { exit; }\n"),
    },
    Experiment {
        id: Id(4, 6, 10),
        did: "load a text for sm_120",
        run: |b| of_bytes(b, b".version 8.7\n.target sm_120\n.address_size 64\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 11),
        did: "load a text for sm_90, one for sm_90a, one for sm_80",
        run: |b| {
            let of = |target: &str| {
                let text =
                    format!(".version 8.0\n.target {target}\n.address_size 64\n.visible .entry e() {{ ret; }}\n");
                of_bytes(b, text.as_bytes())
            };
            Ok(format!("{}, {}, {}", of("sm_90")?, of("sm_90a")?, of("sm_80")?))
        },
    },
    Experiment {
        id: Id(4, 6, 12),
        did: "load a text for sm_70 whose version, 5.0, is older than sm_70",
        run: |b| of_bytes(b, b".version 5.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 13),
        did: "load a text of 32-bit addresses",
        run: |b| of_bytes(b, b".version 6.4\n.target sm_70\n.address_size 32\n.visible .entry empty() { ret; }\n"),
    },
    Experiment {
        id: Id(4, 6, 14),
        did: "load a text with a brace too few, on line 7: the code, and does the log say something",
        run: |b| logged(b, ".visible .entry broken()\n{\n    ret;\n", None),
    },
    Experiment {
        id: Id(4, 6, 15),
        did: "load a text with a syntax error on line 6: the code, and does the log name the line",
        run: |b| logged(b, ".visible .entry broken()\n{\n    add.u32 %r1 %r2;\n    ret;\n}\n", Some(6)),
    },
    Experiment {
        id: Id(4, 6, 16),
        did: "load a text with an unknown instruction on line 6: the code, and does the log name the line",
        run: |b| logged(b, ".visible .entry broken()\n{\n    conjure.u32 1;\n    ret;\n}\n", Some(6)),
    },
    Experiment {
        id: Id(4, 6, 17),
        did: "load a text with an undeclared register on line 6: the code, and does the log name the line",
        run: |b| logged(b, ".visible .entry broken()\n{\n    mov.u32 %r1, 1;\n    ret;\n}\n", Some(6)),
    },
    Experiment {
        id: Id(4, 6, 18),
        did: "load a text that calls an undeclared function on line 6: the code, and does the log name the line",
        run: |b| logged(b, ".visible .entry broken()\n{\n    call.uni nowhere;\n    ret;\n}\n", Some(6)),
    },
    Experiment {
        id: Id(4, 6, 19),
        did: "load a text with a jump to no label on line 6: the code, and does the log name the line",
        run: |b| logged(b, ".visible .entry broken()\n{\n    bra nowhere;\n    ret;\n}\n", Some(6)),
    },
    Experiment {
        id: Id(4, 6, 20),
        did: "load a text with an operand of the wrong type on line 7: the code, and does the log name the line",
        run: |b| {
            let text = ".visible .entry broken()\n{\n    .reg .u64 %r1;\n    mov.u32 %r1, 1;\n    ret;\n}\n";
            logged(b, text, Some(7))
        },
    },
    Experiment {
        id: Id(4, 6, 21),
        did: "load a text with an instruction that sm_70 lacks on line 8: the code, and does the log name the line",
        run: |b| {
            let text = ".visible .entry broken()\n{\n    .reg .u32 %r<3>;\n    mov.u32 %r1, 1;\n    redux.sync.add.u32 %r2, %r1, 1;\n    ret;\n}\n";
            logged(b, text, Some(8))
        },
    },
    Experiment {
        id: Id(4, 6, 22),
        did: "load a text that names a kernel twice, on line 4 and line 8: the code, and does the log name the line",
        run: |b| {
            let one = ".visible .entry twice()\n{\n    ret;\n}\n";
            logged(b, &format!("{one}{one}"), Some(8))
        },
    },
    Experiment {
        id: Id(4, 6, 23),
        did: "load a text whose kernel stores to its parameter, on line 8: the code, and does the log name the line",
        run: |b| {
            let text = ".visible .entry broken(.param .u32 p)\n{\n    .reg .u32 %r<3>;\n    mov.u32 %r1, 1;\n    st.param.u32 [p], %r1;\n    ret;\n}\n";
            logged(b, text, Some(8))
        },
    },
    Experiment {
        id: Id(4, 6, 24),
        did: "load a good text: the code, and what is in the error log",
        run: |b| logged(b, ".visible .entry good()\n{\n    ret;\n}\n", None),
    },
    Experiment {
        id: Id(4, 6, 25),
        did: "load a broken text with 16 bytes of room for the log: the code, the size in the end, where the NUL is",
        run: small_log,
    },
    Experiment {
        id: Id(4, 6, 26),
        did: "load a broken text with a log: is its size in the end the length of what it says, with or without NUL",
        run: log_size,
    },
    Experiment {
        id: Id(4, 6, 27),
        did: "load a broken text with a log of no size",
        run: |b| {
            b.init_context()?;
            let mut log = vec![b'x'; 64];
            let mut options = Options::new().with(CUjit_option::ERROR_LOG_BUFFER, log.as_mut_ptr() as usize);
            let text = broken();
            // SAFETY: the text ends in a NUL; the driver is told that the log has no space, and the log outlives the
            // call.
            let answer = code(unsafe { module::load_with(b, text.as_ptr().cast(), &mut options) });
            Ok(format!("{answer}, {}", choose(log.iter().all(|&byte| byte == b'x'), "untouched", "written to")))
        },
    },
    Experiment {
        id: Id(4, 6, 28),
        did: "load a good text with option 200",
        run: |b| {
            b.init_context()?;
            let mut options = Options::new().with(CUjit_option(200), 0);
            // SAFETY: the text ends in a NUL; the value is not an address.
            Ok(code(unsafe { module::load_with(b, KERNELS.as_ptr().cast(), &mut options) }))
        },
    },
    Experiment {
        id: Id(4, 6, 29),
        did: "load a text with the line ends of Windows, and launch a kernel of it",
        run: |b| launched(b, &format!("{HEAD}.visible .entry good()\n{{\n    ret;\n}}\n").replace('\n', "\r\n")),
    },
    Experiment {
        id: Id(4, 6, 30),
        did: "load a text that does not end with its last line, and launch a kernel of it",
        run: |b| launched(b, &format!("{HEAD}.visible .entry good() {{ ret; }}")),
    },
    Experiment {
        id: Id(4, 6, 31),
        did: "load a text with a comment at its end that does not end, and launch a kernel of it",
        run: |b| launched(b, &format!("{HEAD}.visible .entry good() {{ ret; }} // the end")),
    },
    Experiment {
        id: Id(4, 6, 32),
        did: "load a text that begins with blank lines and comments, and launch a kernel of it",
        run: |b| launched(b, &format!("\n// one\n/* two\n */\n{HEAD}.visible .entry good() {{ ret; }}\n")),
    },
    Experiment {
        id: Id(4, 6, 33),
        did: "load a text with letters beyond ASCII in a comment, and launch a kernel of it",
        run: |b| launched(b, &format!("{HEAD}// größer\n.visible .entry good() {{ ret; }}\n")),
    },
    Experiment {
        id: Id(4, 6, 34),
        did: "load a comment of several lines that does not end, on line 4: the code, and does the log say something",
        run: |b| logged(b, "/* never\n.visible .entry good() { ret; }\n", None),
    },
    Experiment {
        id: Id(4, 6, 35),
        did: "load the first 20 bytes of an ELF file",
        run: |b| of_bytes(b, &elf(190)[..20]),
    },
    Experiment { id: Id(4, 6, 36), did: "load a 64-bit ELF header of x86", run: |b| of_bytes(b, &elf(62)) },
    Experiment {
        id: Id(4, 6, 37),
        did: "load a 64-bit ELF header of CUDA without sections",
        run: |b| of_bytes(b, &elf(190)),
    },
    Experiment {
        id: Id(4, 6, 38),
        did: "load what begins as a fat binary and goes on with garbage",
        run: |b| {
            let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
            image.extend(1_u16.to_le_bytes());
            image.extend(16_u16.to_le_bytes());
            image.extend(256_u64.to_le_bytes());
            image.extend((0..256).map(|at| (at * 37 % 251) as u8));
            of_bytes(b, &image)
        },
    },
    Experiment {
        id: Id(4, 6, 39),
        did: "load a fat binary with nothing in it",
        run: |b| {
            let mut image = 0xba55_ed50_u32.to_le_bytes().to_vec();
            image.extend(1_u16.to_le_bytes());
            image.extend(16_u16.to_le_bytes());
            image.extend(0_u64.to_le_bytes());
            of_bytes(b, &image)
        },
    },
    Experiment {
        id: Id(4, 6, 40),
        did: "load a good text with cuModuleLoadFatBinary",
        run: |b| {
            b.init_context()?;
            // SAFETY: the text ends in a NUL, after which a driver that takes it for another kind of image finds as
            // many bytes again as the longest header has.
            Ok(code(unsafe { module::load_fat(b, KERNELS.as_ptr().cast()) }))
        },
    },
    Experiment {
        id: Id(4, 7, 1),
        did: "load a file that is not there",
        run: |b| {
            b.init_context()?;
            Ok(code(module::load_file(b, c"/nowhere/text.ptx")))
        },
    },
    Experiment {
        id: Id(4, 7, 2),
        did: "load a folder",
        run: |b| {
            b.init_context()?;
            Ok(code(module::load_file(b, c"/")))
        },
    },
    Experiment { id: Id(4, 7, 3), did: "load an empty file", run: |b| of_file(b, b"") },
    Experiment {
        id: Id(4, 7, 4),
        did: "load a file with a good text, no NUL in it",
        run: |b| of_file(b, KERNELS.to_bytes()),
    },
    Experiment { id: Id(4, 7, 5), did: "load a file of garbage", run: |b| of_file(b, b"this is no image\n") },
    Experiment {
        id: Id(4, 7, 6),
        did: "load a file of no name",
        run: |b| {
            b.init_context()?;
            Ok(code(module::load_file(b, c"")))
        },
    },
    Experiment {
        id: Id(4, 7, 7),
        did: "load a file with a text that does not compile",
        run: |b| of_file(b, broken().to_bytes()),
    },
];

/// Returns the header of a 64-bit file for a machine with this number.
fn elf(machine: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend(2_u16.to_le_bytes());
    header.extend(machine.to_le_bytes());
    header.extend(1_u32.to_le_bytes());
    header.extend([0; 28]);
    header.extend(64_u16.to_le_bytes());
    header.extend([0; 10]);
    header
}

/// Returns a text with an error on line 6.
fn broken() -> CString {
    CString::new(format!("{HEAD}.visible .entry broken()\n{{\n    conjure.u32 1;\n    ret;\n}}\n"))
        .expect("the text holds no NUL")
}

fn of_pointer(b: &Fixture, image: *const c_void) -> Answer {
    b.init_context()?;
    // SAFETY: the image is null, which a driver checks for, or is followed by a page of zeros.
    Ok(code(unsafe { module::load(b, image) }))
}

/// Loads bytes followed by a page of zeros: whatever a driver takes them for, it finds an end there.
fn of_bytes(b: &Fixture, bytes: &[u8]) -> Answer {
    let mut image = bytes.to_vec();
    image.resize(bytes.len() + 4096, 0);
    of_pointer(b, image.as_ptr().cast())
}

fn of_file(b: &Fixture, bytes: &[u8]) -> Answer {
    b.init_context()?;
    let path = std::env::temp_dir().join(format!("freehold-lab-{}.ptx", std::process::id()));
    fs::write(&path, bytes)?;
    let name = CString::new(path.as_os_str().as_encoded_bytes()).expect("a path holds no NUL");
    let answer = code(module::load_file(b, &name));
    fs::remove_file(&path)?;
    Ok(answer)
}

/// A log buffer given to a driver.
struct Log {
    code: String,
    buffer: Vec<u8>,
    /// The size that the driver reports.
    bytes: usize,
}

impl Log {
    /// Loads a text with `bytes` bytes of space for the error log.
    fn of(b: &Fixture, text: &CStr, bytes: usize) -> Self {
        let mut room = vec![b'#'; bytes];
        let mut options = Options::new()
            .with(CUjit_option::ERROR_LOG_BUFFER, room.as_mut_ptr() as usize)
            .with(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES, bytes);
        // SAFETY: the text ends in a NUL; the log has as many bytes as the driver is told, and outlives the call.
        let code = code(unsafe { module::load_with(b, text.as_ptr().cast(), &mut options) });
        // A driver may write the size to 32 bits of the option.
        let said = options.value(CUjit_option::ERROR_LOG_BUFFER_SIZE_BYTES).unwrap_or(0) as u32 as usize;
        Self { code, buffer: room, bytes: said }
    }

    /// Returns the text up to its NUL, or all if there is none.
    fn text(&self) -> String {
        let end = self.buffer.iter().position(|&byte| byte == 0).unwrap_or(self.buffer.len());
        String::from_utf8_lossy(&self.buffer[..end]).into_owned()
    }
}

/// Returns the code of loading this text after `HEAD`, and the stable part of the error log: whether it says something,
/// and whether it names the line.
fn logged(b: &Fixture, body: &str, line: Option<u32>) -> Answer {
    b.init_context()?;
    let text = CString::new(format!("{HEAD}{body}")).expect("the text holds no NUL");
    let log = Log::of(b, &text, 8192);
    let said = log.text();
    let words = match line {
        _ if said.is_empty() || said.starts_with('#') => "the log is empty".to_owned(),
        None => "the log says something".to_owned(),
        Some(line) if said.contains(&format!("line {line};")) => format!("the log names line {line}"),
        Some(line) => format!("the log does not name line {line}"),
    };
    Ok(format!("{}, {words}", log.code))
}

fn small_log(b: &Fixture) -> Answer {
    b.init_context()?;
    let log = Log::of(b, &broken(), 16);
    let nul = match log.buffer.iter().position(|&byte| byte == 0) {
        Some(at) => format!("at {at}"),
        None => "nowhere".to_owned(),
    };
    Ok(format!("{}, {}, NUL {nul}", log.code, log.bytes))
}

fn log_size(b: &Fixture) -> Answer {
    b.init_context()?;
    let log = Log::of(b, &broken(), 8192);
    let length = log.text().len();
    Ok(match log.bytes {
        said if said == length => "without NUL".to_owned(),
        said if said == length + 1 => "with NUL".to_owned(),
        8192 => "the room".to_owned(),
        _ => "another".to_owned(),
    })
}

/// Loads a text and launches its kernel `good`.
fn launched(b: &Fixture, text: &str) -> Answer {
    b.init_context()?;
    let text = CString::new(text).expect("the text holds no NUL");
    let of = match load(b, &text) {
        Ok(of) => of,
        Err(error) => return Ok(format!("load {}", code::<(), _>(Err(error)))),
    };
    let launched = function(b, of, c"good").and_then(|good| launch(b, good, ONE, DEFAULT, &[]));
    Ok(format!("load SUCCESS, launch {}", code(launched)))
}
