// printf of every conversion, with widths and precisions.
// launch: printf_kinds grid 1 block 1
// arg: value s32 -42
// arg: value f64 3.14159265358979
// printf:

extern "C" __global__ void printf_kinds(int n, double x) {
    printf("plain\n");
    printf("%d %i %u %x %X %o\n", n, n, 42u, 48879u, 48879u, 8u);
    printf("[%5d] [%-5d] [%05d] [%+d] [% d]\n", n, n, n, -n, -n);
    printf("%lld %llu %llx %ld %lu\n", -1234567890123ll, 12345678901234567890ull, 0xfeedfacecafebeefull, -5l, 6ul);
    printf("%f %.2f %10.3f %-10.1f| %e %.3E %g %G\n", x, x, x, x, x, x, x * 1e10, x * 1e-10);
    printf("%s and %10s and %-6s|\n", "text", "right", "left");
    printf("%c%c%c %%\n", 'a', 'b', 'c');
    printf("%#x %#o %hd\n", 255u, 8u, (short)-7);
    printf("%f %f %f\n", 1.0 / 0.0, -1.0 / 0.0, -0.0);
    int count = printf("three %d %d %d\n", 1, 2, 3);
    printf("gave %d, and nothing else gives %d\n", count, printf("nothing\n"));
}
