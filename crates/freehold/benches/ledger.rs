//! What the ledger costs: finding an owner, and each step of a block's life.

fn main() {
    divan::main();
}
