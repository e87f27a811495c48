// Votes: all, any, uni and ballot, of predicates that none, one, some and all lanes have.
// launch: vote grid 1 block 64
// arg: out u32 1024

#define PRED(k, text)                                                                                          \
    {                                                                                                          \
        unsigned d;                                                                                            \
        asm volatile("{.reg .pred p, q; setp.ne.u32 q, %1, 0; vote.sync." text ".pred p, q, 0xffffffff; "      \
                     "selp.u32 %0, 1, 0, p;}"                                                                  \
                     : "=r"(d)                                                                                 \
                     : "r"(yes));                                                                              \
        out[(k) * 64 + i] = d;                                                                                   \
    }
#define ALL(k)                                                                                                 \
    PRED(k, "all") PRED(k + 1, "any") PRED(k + 2, "uni")                                                       \
    {                                                                                                          \
        unsigned d;                                                                                            \
        asm volatile("{.reg .pred q; setp.ne.u32 q, %1, 0; vote.sync.ballot.b32 %0, !q, 0xffffffff;}"          \
                     : "=r"(d)                                                                                 \
                     : "r"(yes));                                                                              \
        out[((k) + 3) * 64 + i] = d;                                                                             \
    }

extern "C" __global__ void vote(unsigned *out) {
    unsigned i = threadIdx.x, yes = 0;
    ALL(0)
    yes = i == 40;
    ALL(4)
    yes = i % 3 == 0;
    ALL(8)
    yes = 1;
    ALL(12)
}
