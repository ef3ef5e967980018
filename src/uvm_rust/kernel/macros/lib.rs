// SPDX-License-Identifier: GPL-2.0-only OR MIT

//! The attribute macros of our `kernel` crate, run by the compiler on the build machine.

use proc_macro::{Delimiter, Group, TokenStream, TokenTree};

/// For a structure of which some fields, marked `#[pin]`, must not move once they are made.
///
/// Gives it what `pin_init!` needs: a function for each field, which makes such a one in
/// place. And sees to what makes pinning sound: the structure is `Unpin` only if those
/// fields are, and has no `Drop`, which could move them.
///
/// It takes structures with named fields and without type parameters.
#[proc_macro_attribute]
pub fn pin_data(arguments: TokenStream, item: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return error("pin_data takes no arguments here");
    }
    match expand(item) {
        Ok(tokens) => tokens,
        Err(message) => error(message),
    }
}

/// A field, as text.
struct Field {
    pinned: bool,
    visibility: String,
    name: String,
    type_: String,
}

fn error(message: &str) -> TokenStream {
    format!("::core::compile_error!({message:?});")
        .parse()
        .unwrap_or_default()
}

fn expand(item: TokenStream) -> Result<TokenStream, &'static str> {
    let mut tokens: Vec<TokenTree> = item.into_iter().collect();
    let at = tokens
        .iter()
        .position(|t| matches!(t, TokenTree::Ident(i) if i.to_string() == "struct"))
        .ok_or("pin_data is for structures")?;
    let name = tokens
        .get(at + 1)
        .ok_or("a structure has a name")?
        .to_string();
    let body = match tokens.get(at + 2) {
        Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Brace => g.clone(),
        _ => return Err("pin_data is for structures with named fields, without parameters"),
    };
    let (fields, stripped) = fields_of(body.stream())?;
    let mut group = Group::new(Delimiter::Brace, stripped);
    group.set_span(body.span());
    tokens[at + 2] = group.into();

    let mut out: TokenStream = tokens.into_iter().collect();
    out.extend(
        support(&name, &fields)
            .parse::<TokenStream>()
            .map_err(|_| "pin_data failed")?,
    );
    Ok(out)
}

/// The fields of a structure, and its tokens without `#[pin]`.
fn fields_of(body: TokenStream) -> Result<(Vec<Field>, TokenStream), &'static str> {
    let (mut fields, mut stripped) = (Vec::new(), TokenStream::new());
    let mut tokens = body.into_iter().peekable();
    while tokens.peek().is_some() {
        let mut pinned = false;
        // Attributes.
        while matches!(tokens.peek(), Some(TokenTree::Punct(p)) if p.as_char() == '#') {
            let (hash, attribute) = (tokens.next(), tokens.next());
            match &attribute {
                Some(TokenTree::Group(g)) if g.stream().to_string() == "pin" => pinned = true,
                _ => stripped.extend(hash.into_iter().chain(attribute)),
            }
        }
        // Visibility and name, up to the colon.
        let mut head: Vec<TokenTree> = Vec::new();
        loop {
            match tokens.next() {
                Some(TokenTree::Punct(p)) if p.as_char() == ':' => {
                    stripped.extend(head.iter().cloned());
                    stripped.extend([TokenTree::Punct(p)]);
                    break;
                }
                Some(t) => head.push(t),
                None => return Err("pin_data is for structures with named fields"),
            }
        }
        let name = head.pop().ok_or("a field has a name")?.to_string();
        // The type, up to a comma that is not between angle brackets.
        let mut type_ = TokenStream::new();
        let (mut depth, mut arrow) = (0, false);
        for t in tokens.by_ref() {
            let sign = match &t {
                TokenTree::Punct(p) => p.as_char(),
                _ => ' ',
            };
            stripped.extend([t.clone()]);
            match sign {
                ',' if depth == 0 => break,
                '<' => depth += 1,
                '>' if !arrow => depth -= 1,
                _ => {}
            }
            arrow = sign == '-';
            type_.extend([t]);
        }
        fields.push(Field {
            pinned,
            visibility: head.into_iter().collect::<TokenStream>().to_string(),
            name,
            type_: type_.to_string(),
        });
    }
    Ok((fields, stripped))
}

/// A function for a field, by which `pin_init!` makes it in place.
///
/// One that is not pinned has it too, and nobody can call that: were there none, the field's
/// name would find the method of some trait that all types have, which makes nothing.
fn maker(
    Field {
        pinned,
        visibility,
        name,
        type_,
    }: &Field,
) -> String {
    if !pinned {
        return format!(
            "/// # Safety\n///\n/// There is no such call.\n\
             {visibility} unsafe fn {name}<T>(self, _: *mut T, never: ::core::convert::Infallible) \
                 {{ match never {{}} }}\n"
        );
    }
    format!(
        "/// # Safety\n///\n/// As for `PinInit::__pinned_init`.\n\
         {visibility} unsafe fn {name}(self, slot: *mut {type_}, \
             init: impl ::kernel::init::PinInit<{type_}, ::core::convert::Infallible>) {{\n\
             // SAFETY: The contract is the same.\n\
             match unsafe {{ init.__pinned_init(slot) }} {{ Ok(()) => {{}}, Err(never) => match never {{}} }}\n\
         }}\n"
    )
}

/// What goes with the structure: `__PinData`, the bound of `Unpin`, and that it must not implement
/// `Drop`.
fn support(name: &str, fields: &[Field]) -> String {
    let makers: String = fields.iter().map(maker).collect();
    let kept: String = fields
        .iter()
        .filter(|f| f.pinned)
        .map(|f| format!("{}: {},\n", f.name, f.type_))
        .collect();
    format!(
        "#[allow(clippy::undocumented_unsafe_blocks, dead_code)]
        const _: () = {{
            #[derive(Clone, Copy)]
            pub struct __PinData;
            impl __PinData {{ {makers} }}
            unsafe impl ::kernel::init::HasPinData for {name} {{
                type PinData = __PinData;
                fn __pin_data() -> __PinData {{ __PinData }}
            }}

            // The lifetime only makes the bound one that depends on something.
            struct __Pinned<'__pin> {{
                __pin: ::core::marker::PhantomData<&'__pin ()>,
                {kept}
            }}
            impl<'__pin> ::core::marker::Unpin for {name} where __Pinned<'__pin>: ::core::marker::Unpin {{}}

            trait __MustNotImplDrop {{}}
            #[allow(drop_bounds)]
            impl<T: ::core::ops::Drop> __MustNotImplDrop for T {{}}
            impl __MustNotImplDrop for {name} {{}}
        }};"
    )
}
