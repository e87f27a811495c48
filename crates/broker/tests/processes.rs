//! Real processes: keeper, broker, cleaner and tenants, started and killed.

fn main() {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    let program = std::env::current_exe().expect("a program has a path");
    if arguments.first().is_some_and(|first| first == "part") {
        let before = vec!["part".into()];
        let (part, config) = freehold_broker::Config::parse(program, before, &arguments[1..]).expect("the words of a part");
        if let Err(error) = freehold_broker::play(part, config) {
            eprintln!("{part:?}: {error}");
            std::process::exit(1);
        }
        return;
    }
    let folder = std::env::temp_dir().join(format!("freehold-test-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let socket = folder.join("broker");
    let config = freehold_broker::Config { program, before: vec!["part".into()], socket: socket.clone(), device: Some("soft".into()), memory_bytes: 1 << 30, spin_us: 100 };
    std::thread::spawn(move || freehold_broker::keeper::run(&config, None, || println!("ready")));
    let mut link = loop {
        match freehold_broker::Link::connect(&socket) {
            Ok(link) => break link,
            Err(error) => { println!("{error}"); std::thread::sleep(std::time::Duration::from_millis(20)); }
        }
    };
    println!("{:?}", link.tenant());
    let granted = link.reserve(4096).unwrap();
    println!("{granted:?}");
    println!("{:?}", link.attach(granted.segment));
    let start = std::time::Instant::now();
    let n = 200_000;
    for _ in 0..n { let g = link.reserve(4096).unwrap(); link.give_back(g.lease, Default::default()).unwrap(); }
    println!("{} ns a pair", start.elapsed().as_nanos() / n);
    println!("{:?}", link.call(freehold_broker::wire::Request::Totals).unwrap());
    println!("{:?}", link.take_refused());
    link.close().unwrap();
}
