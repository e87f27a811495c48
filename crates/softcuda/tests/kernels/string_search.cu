// Where a word occurs in a text: bytes, an early break, and the smallest place by an atomic.
// launch: string_search grid 2 block 64
// arg: inout u32 1 value 0xffffffff
// arg: inout u32 1 value 0
// arg: in u8 96 text "she sells sea shells by the sea shore; the shells she sells are sea shells, that i am sure of it"
// arg: in u8 6 text "shells"
// arg: value u32 96
// arg: value u32 6

extern "C" __global__ void string_search(unsigned *first, unsigned *count, const char *text, const char *word,
                                         unsigned text_length, unsigned word_length) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x, k = 0;
    if (at + word_length > text_length) return;
    for (; k < word_length; k++)
        if (text[at + k] != word[k]) break;
    if (k == word_length) {
        atomicMin(first, at);
        atomicAdd(count, 1);
    }
}
