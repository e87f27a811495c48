//! The calls of the service, in one list.

use prost::Message;

use crate::proto;

pub(crate) const SERVICE: &str = "freehold.v1.Freehold";
pub(crate) const UPLOAD: &str = "/freehold.v1.Freehold/Upload";
pub(crate) const DOWNLOAD: &str = "/freehold.v1.Freehold/Download";

/// A request of a call that has one request and one reply.
pub trait Method: Message + Default {
    /// The path of the call in HTTP.
    const PATH: &'static str;

    /// The server's reply.
    type Reply: Message + Default;
}

/// Passes the calls with one request and one reply to a macro: the function of the server, the name, the request, the
/// reply.
macro_rules! methods {
    ($use:ident) => {
        $use! {
            open "Open" OpenRequest Session,
            close "Close" CloseRequest Done,
            alloc "Alloc" AllocRequest Block,
            free "Free" FreeRequest Done,
            resume_upload "ResumeUpload" ResumeRequest Uploaded,
            publish "Publish" PublishRequest Done,
            lease "Lease" LeaseRequest Block,
            drop_name "Drop" DropRequest Done,
            find "Find" FindRequest Found,
            list "List" ListRequest Names,
            put_module "PutModule" PutModuleRequest Module,
            find_module "FindModule" FindModuleRequest Module,
            list_modules "ListModules" ListModulesRequest Modules,
            drop_module "DropModule" DropModuleRequest Done,
            launch "Launch" LaunchRequest Launched,
            wait "Wait" WaitRequest Done,
            totals "Totals" TotalsRequest Stats,
        }
    };
}
pub(crate) use methods;

macro_rules! implement {
    ($($function:ident $name:literal $request:ident $reply:ident,)*) => {$(
        impl Method for proto::$request {
            const PATH: &'static str = concat!("/freehold.v1.Freehold/", $name);
            type Reply = proto::$reply;
        }
    )*};
}
methods!(implement);

#[cfg(test)]
mod tests {
    use prost::Message;
    use prost_types::{FileDescriptorSet, MethodDescriptorProto};

    use super::*;
    use crate::proto::DESCRIPTORS;

    macro_rules! listed {
        ($($function:ident $name:literal $request:ident $reply:ident,)*) => {
            [$(($name, stringify!($request), stringify!($reply))),*]
        };
    }

    /// The calls of a client in another language are those that this crate implements.
    #[test]
    fn the_list_has_every_call_of_the_proto_file() {
        let files = FileDescriptorSet::decode(DESCRIPTORS).unwrap();
        let service = files.file.iter().flat_map(|file| &file.service).next().unwrap();
        let package = files.file.iter().find(|file| !file.service.is_empty()).unwrap().package();
        assert_eq!(format!("{package}.{}", service.name()), SERVICE);
        let (streaming, plain): (Vec<_>, Vec<&MethodDescriptorProto>) =
            service.method.iter().partition(|method| method.client_streaming() || method.server_streaming());
        let path = |method: &&MethodDescriptorProto| format!("/{SERVICE}/{}", method.name());
        assert_eq!(streaming.iter().map(path).collect::<Vec<_>>(), [UPLOAD, DOWNLOAD]);
        let message = |name: &str| name.rsplit('.').next().unwrap().to_owned();
        let described: Vec<_> = plain
            .iter()
            .map(|method| (method.name().to_owned(), message(method.input_type()), message(method.output_type())))
            .collect();
        let listed: Vec<_> =
            methods!(listed).map(|(name, request, reply)| (name.into(), request.into(), reply.into())).into();
        assert_eq!(described, listed);
    }
}
