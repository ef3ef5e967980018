// Places for our state of a VA space. The first is owned by uvm_rust_seam.c, the
// second by uvm_rust_prefetch.c, the third by uvm_rust_flash_owner.c.
@@
@@
struct uvm_va_space_struct {
+ struct uvm_rust_space *uvm_rust;
+ struct uvm_rust_prefetch *uvm_rust_prefetch;
+ struct uvm_rust_tenant *uvm_rust_flash_tenant;
...
};
