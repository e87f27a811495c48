; Integers of 128 bits, vectors and an overflow flag in LLVM's IR, as other front ends than CUDA's produce them.
; launch: llvm_i128 grid 1 block 16
; arg: out u64 64
; arg: in u64 32 noise 94

target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
target triple = "nvptx64-nvidia-cuda"

declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare { i64, i1 } @llvm.uadd.with.overflow.i64(i64, i64)
declare i64 @llvm.fshl.i64(i64, i64, i64)

define void @llvm_i128(i64* %out, i64* %in) {
  %tid = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %two = mul i32 %tid, 2
  %four = mul i32 %tid, 4
  %pa = getelementptr i64, i64* %in, i32 %two
  %pv = bitcast i64* %pa to <2 x i64>*
  %pair = load <2 x i64>, <2 x i64>* %pv, align 16
  %a = extractelement <2 x i64> %pair, i32 0
  %b = extractelement <2 x i64> %pair, i32 1
  %wa = zext i64 %a to i128
  %wb = zext i64 %b to i128
  %product = mul i128 %wa, %wb
  %moved = shl i128 %wa, 37
  %both = add i128 %product, %moved
  %low = trunc i128 %both to i64
  %high128 = lshr i128 %both, 64
  %high = trunc i128 %high128 to i64
  %sum = call { i64, i1 } @llvm.uadd.with.overflow.i64(i64 %a, i64 %b)
  %added = extractvalue { i64, i1 } %sum, 0
  %carry = extractvalue { i64, i1 } %sum, 1
  %flag = zext i1 %carry to i64
  %turned = call i64 @llvm.fshl.i64(i64 %a, i64 %b, i64 13)
  %mixed = xor i64 %turned, %flag
  %p0 = getelementptr i64, i64* %out, i32 %four
  %p1 = getelementptr i64, i64* %p0, i32 1
  %p2 = getelementptr i64, i64* %p0, i32 2
  %p3 = getelementptr i64, i64* %p0, i32 3
  store i64 %low, i64* %p0
  store i64 %high, i64* %p1
  store i64 %added, i64* %p2
  store i64 %mixed, i64* %p3
  ret void
}

!nvvm.annotations = !{!0}
!0 = !{void (i64*, i64*)* @llvm_i128, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0}
