; A loop in LLVM's IR: phis, a select, a switch, wide and odd integers, address spaces.
; launch: llvm_phi grid 1 block 32
; arg: out u64 32
; arg: in u32 32 random 93

target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()

define void @llvm_phi(i64* %out, i32* %in) {
entry:
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %from = getelementptr i32, i32* %in, i32 %tid
  %start = load i32, i32* %from
  br label %head

head:
  %x = phi i32 [ %start, %entry ], [ %next, %tail ]
  %sum = phi i64 [ 0, %entry ], [ %more, %tail ]
  %k = phi i32 [ 0, %entry ], [ %k1, %tail ]
  %kind = and i32 %x, 3
  switch i32 %kind, label %other [
    i32 0, label %zero
    i32 1, label %one
  ]

zero:
  %wide0 = zext i32 %x to i64
  br label %tail

one:
  %wide1 = sext i32 %x to i64
  %cube = mul i64 %wide1, %wide1
  br label %tail

other:
  %odd = trunc i32 %x to i20
  %back = sext i20 %odd to i64
  br label %tail

tail:
  %term = phi i64 [ %wide0, %zero ], [ %cube, %one ], [ %back, %other ]
  %more = add i64 %sum, %term
  %scaled = mul i32 %x, 69069
  %next = add i32 %scaled, 5
  %k1 = add i32 %k, 1
  %limit = urem i32 %start, 17
  %done = icmp ugt i32 %k1, %limit
  br i1 %done, label %exit, label %head

exit:
  %big = icmp ugt i64 %more, 9223372036854775807
  %flipped = xor i64 %more, -1
  %result = select i1 %big, i64 %flipped, i64 %more
  %to = getelementptr i64, i64* %out, i32 %tid
  store i64 %result, i64* %to
  ret void
}

!nvvm.annotations = !{!0}
!0 = !{void (i64*, i32*)* @llvm_phi, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
