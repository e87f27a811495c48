//! The book, by itself: what stays in it, and what does not.
//!
//! All books here are of one machine, and differ in their bytes: a process that begins a book looks through those of
//! other machines, and closing a file ends the locks that the process has on it.

use std::sync::Arc;

use super::*;
use crate::memory::backing::{Backing, Content, Label};

const MIB: u64 = 1 << 20;

fn open(total_bytes: u64) -> Book {
    Book::open(&format!("tests-{}", process::id()), 0, total_bytes).expect("a book can be made")
}

fn header(book: &Book) -> Header {
    book.turn().expect("nobody has it").read().expect("it is a book").header
}

#[test]
fn an_account_of_what_this_process_was_before_ends() {
    let book = open(1024 * MIB);
    let turn = book.turn().expect("nobody has it");
    let former = Process { pid: process::id().into(), used_bytes: 64 * MIB };
    turn.read().expect("it is a book").write_process(1, former).expect("there is room");
    drop(turn);
    assert_eq!(book.free_bytes().expect("it is a book"), 1024 * MIB);
    book.close().expect("nobody is at it");
}

#[test]
fn an_account_of_another_copy_in_this_process_stays() {
    let (one, other) = (open(1025 * MIB), open(1025 * MIB));
    assert!(other.charge(Account::Own, 64 * MIB).expect("it is a book"));
    assert_eq!(one.free_bytes().expect("it is a book"), 961 * MIB);
    other.close().expect("nobody is at it");
    one.close().expect("nobody is at it");
}

#[test]
fn who_has_left_takes_nothing_more_and_leaves_its_place_to_another() {
    let (leaver, stayer) = (open(1026 * MIB), open(1026 * MIB));
    leaver.close().expect("nobody is at it");
    let charged = leaver.charge(Account::Own, MIB).map_err(|error| error.kind());
    assert_eq!(charged, Err(io::ErrorKind::NotFound));
    assert_eq!(stayer.free_bytes().expect("it is a book"), 1026 * MIB);
    assert!(!is_alive(&lock(&stayer.open).file, 0).expect("it is open"));
    assert!(is_alive(&lock(&stayer.open).file, 1).expect("it is open"));
    stayer.close().expect("nobody is at it");
}

#[test]
fn a_book_that_was_made_and_not_begun_is_begun() {
    let book = open(1027 * MIB);
    let path = book.path.clone();
    book.close().expect("nobody is at it");
    File::create(&path).expect("the folder is ours").set_len(FILE_BYTES).expect("it costs nothing");
    let book = open(1027 * MIB);
    assert_eq!(header(&book).total_bytes, 1027 * MIB);
    book.close().expect("nobody is at it");
    assert!(!path.exists());
}

#[test]
fn a_book_that_came_in_the_place_of_ours_is_not_removed() {
    let old = open(1028 * MIB);
    fs::remove_file(&old.path).expect("the folder is ours");
    let new = open(1028 * MIB);
    old.close().expect("nobody is at it");
    assert!(new.path.exists());
    new.close().expect("nobody is at it");
    assert!(!new.path.exists());
}

#[test]
fn memory_that_could_not_be_shared_is_not_shared_until_it_can() {
    let book = Arc::new(open(1029 * MIB));
    let memory = Backing::create(&book, 2 * MIB).expect("there is room").expect("the device has so much");
    let label = Label::new(Content::Pages, 0, 2 * MIB);
    let whole = header(&book);
    let write = |header: Header| lock(&book.open).file.write_all_at(header.as_bytes(), 0).expect("it is open");
    write(Header { magic: 1, ..whole });
    assert!(memory.share(label).is_err());
    assert!(!memory.is_shared());
    write(whole);
    memory.share(label).expect("the book is whole");
    assert!(memory.is_shared());
    drop(memory);
    assert_eq!(book.free_bytes().expect("it is a book"), 1029 * MIB);
    book.close().expect("nobody is at it");
}
