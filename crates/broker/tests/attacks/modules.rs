//! Attacks with modules: variables that take more device memory than the user's quota, by dropping loaded modules, by
//! loading them repeatedly, and by many small ones.

use freehold::open;
use freehold::signature::device_bytes;
use freehold_driver::cuda::{context, memory, primary};

use super::Attacker;
use crate::calls::TEXT;
use crate::harness::{self, MEMORY_BYTES, until};
use crate::raw::{Raw, RawSession};

/// What a worker reports of a module that the broker does not let it load, and the reason.
const NOT_LOADED: u32 = 17;
const USER_QUOTA: u64 = 211;

/// A text with a variable of this many bytes.
fn text(bytes: u64) -> String {
    TEXT.replace("// Nothing.", &format!(".visible .global .align 8 .b8 variable[{bytes}];"))
}

/// Measures how much device memory is in use by all processes together.
struct Gauge {
    opened: open::Opened,
    before: u64,
}

impl Gauge {
    fn new() -> Self {
        // SAFETY: the function table is only used to query free memory.
        let opened = unsafe { open::open(Some(&harness::device())) }.expect("there is a device");
        let context = primary::retain(&opened.api, opened.device).expect("a context");
        context::set_current(&opened.api, context).expect("a context");
        let mut gauge = Self { opened, before: 0 };
        gauge.before = gauge.taken();
        gauge
    }

    /// Bytes taken since the attack began.
    fn taken(&self) -> u64 {
        let info = memory::info(&self.opened.api).expect("the driver reports free memory");
        ((info.total_bytes - info.free_bytes) as u64).saturating_sub(self.before)
    }
}

/// Makes a worker load a text under a name. Returns the kinds of failures that it has reported so far.
fn load(raw: &mut Raw, session: &mut RawSession, name: &str, text: &str) -> Vec<u32> {
    let put = raw.put_module(name, text, device_bytes(text).expect("it is PTX"));
    assert_eq!(put[0] as u16, 105, "{put:x?}");
    let number = session.load(put[1]);
    session.wait(0, number);
    session.failure_kinds()
}

/// A connection with a worker whose context exists: on a real GPU a context takes more memory than this user may use,
/// and none of it counts.
fn started(attacker: &mut Attacker) -> (Raw, RawSession) {
    let mut raw = attacker.connect();
    let mut session = raw.open_session(0);
    let name = "attack/first";
    assert_eq!(load(&mut raw, &mut session, name, &text(8)), [0_u32; 0], "a small module is loaded");
    raw.drop_module(name);
    (raw, session)
}

/// Waits until nothing that was loaded counts: a module is accepted only if the user could load it.
fn until_uncharged(raw: &mut Raw) {
    let (name, bytes) = ("attack/last", MEMORY_BYTES * 3 / 4);
    until("no loaded module counts", || (raw.put_module(name, &text(bytes), bytes)[0] as u16 == 105).then_some(()));
    raw.drop_module(name);
}

/// Puts, loads and drops modules over and over: together they exceed the quota of the user.
pub(super) fn put_and_dropped(attacker: &mut Attacker) {
    let (mut raw, mut session) = started(attacker);
    let gauge = Gauge::new();
    let bytes = MEMORY_BYTES / 4;
    for round in 0..8 {
        let name = format!("attack/dropped-{round}");
        assert_eq!(load(&mut raw, &mut session, &name, &text(bytes)), [0_u32; 0], "dropped modules no longer count");
        assert!(gauge.taken() <= MEMORY_BYTES, "{} bytes of the device are taken", gauge.taken());
        raw.drop_module(&name);
    }
    until("all of it is free again", || (gauge.taken() < bytes).then_some(()));
    until_uncharged(&mut raw);
    attacker.refused += 1;
}

/// Makes several workers load the same text: each has its own variables.
pub(super) fn loaded_often(attacker: &mut Attacker) {
    let mut tenants: Vec<(Raw, RawSession)> = (0..3).map(|_| started(attacker)).collect();
    let gauge = Gauge::new();
    let (bytes, name) = (100 << 20, "attack/often");
    let told = tenants.iter_mut().map(|(raw, session)| {
        let kinds = load(raw, session, name, &text(bytes));
        (kinds, session.failures().first().map(|message| message[2] >> 32))
    });
    let told: Vec<_> = told.collect();
    assert_eq!(told, [(vec![], None), (vec![], None), (vec![NOT_LOADED], Some(USER_QUOTA))]);
    assert!(gauge.taken() <= MEMORY_BYTES, "{} bytes of the device are taken", gauge.taken());
    attacker.refused += 1;
    tenants[0].0.drop_module(name);
    until("all of it is free again", || (gauge.taken() < bytes).then_some(()));
    until_uncharged(&mut tenants[0].0);
}

/// The driver allocates in pages of this size.
const PAGE_BYTES: u64 = 2 << 20;

/// Loads variables of the sizes that a driver rounds up most: it takes at most what is counted, and a page.
pub(super) fn many_and_small(attacker: &mut Attacker) {
    let (mut raw, mut session) = started(attacker);
    let gauge = Gauge::new();
    for (variables, bytes) in
        [(4000, 1), (1000, 513), (30, 200_000), (4, 700_000), (4, (1 << 20) + 1), (2, PAGE_BYTES + 1)]
    {
        let declared: String =
            (0..variables).map(|at| format!(".visible .global .align 1 .b8 v{at}[{bytes}];\n")).collect();
        let names: Vec<String> = (0..4).map(|round| format!("attack/small-{bytes}-{round}")).collect();
        let mut counted = 0;
        for name in &names {
            let text = TEXT.replace("// Nothing.", &format!("// {name}\n{declared}"));
            assert_eq!(load(&mut raw, &mut session, name, &text), [0_u32; 0]);
            counted += device_bytes(&text).expect("it is PTX");
            let taken = gauge.taken();
            assert!(taken <= counted + PAGE_BYTES, "{variables} of {bytes} bytes: {taken} taken, {counted} counted");
        }
        names.iter().for_each(|name| raw.drop_module(name));
        until("all of it is free again", || (gauge.taken() <= PAGE_BYTES).then_some(()));
    }
    attacker.refused += 1;
}
