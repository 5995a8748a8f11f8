//! What is made of the table of operations: marker types, `OPERATIONS` and the client.

/// Picks the named part from an argument list, or `Nothing` if it is absent.
macro_rules! part {
    (path  [path: $x:ty $(, $($rest:tt)*)?]) => { $x };
    (query [query: $x:ty $(, $($rest:tt)*)?]) => { $x };
    (body  [body: $x:ty $(, $($rest:tt)*)?]) => { $x };
    ($want:ident [$other:ident: $x:ty $(, $($rest:tt)*)?]) => { part!($want [$($($rest)*)?]) };
    ($want:ident []) => { Nothing };
}
macro_rules! value {
    (path  [path: $x:ident $(, $($rest:tt)*)?]) => { $x };
    (query [query: $x:ident $(, $($rest:tt)*)?]) => { $x };
    (body  [body: $x:ident $(, $($rest:tt)*)?]) => { $x };
    ($want:ident [$other:ident: $x:ident $(, $($rest:tt)*)?]) => { value!($want [$($($rest)*)?]) };
    ($want:ident []) => { Nothing {} };
}
macro_rules! access {
    () => {
        Access::Read
    };
    ($access:ident) => {
        Access::$access
    };
}
macro_rules! needs {
    () => {
        None
    };
    ($need:ident) => {
        Some(Need::$need)
    };
}

macro_rules! tool {
    () => {
        None
    };
    ($tool:ident) => {
        Some(Tool::$tool)
    };
}

macro_rules! on {
    () => {
        On::Primary
    };
    ($on:ident) => {
        On::$on
    };
}

macro_rules! define_operations { ($(
    $(#[doc = $doc:literal])+ $method:ident $path:literal $name:ident $args:tt -> $reply:ty
        $(, or $other:ident -> $other_reply:ty)? $(, access $access:ident)? $(, needs $need:ident)? $(, fails [$($code:ident),+])? $(, tool $tool:ident)? $(, on $on:ident)?;
)*) => {
    /// One marker type per operation with the name of its row, and one for the second form that a row may answer in.
    #[expect(non_camel_case_types, reason = "one snake_case name is marker, handler, method, operationId and label")]
    pub mod ops { $(
        $(#[doc = $doc])+ pub enum $name {}
        $( #[doc = concat!("[`", stringify!($name), "`] in its second form.")] pub enum $other {} )?
    )* }

    $(
        define_operation!($name $args $reply, OperationInfo {
            name: stringify!($name), method: http::Method::$method, path: $path, access: access!($($access)?),
            needs: needs!($($need)?), tool: tool!($($tool)?), on: on!($($on)?),
            most_bytes: <<ops::$name as Operation>::Body as Body>::most_bytes, fails: &[$($(Code::$code),+)?], docs: &[$($doc),+],
        });
        $( define_operation!($other $args $other_reply, {
            let mut info = <ops::$name as Operation>::INFO;
            info.name = stringify!($other);
            info
        }); )?
    )*

    /// Every operation of the service.
    pub const OPERATIONS: &[OperationInfo] = &[$( <ops::$name as Operation>::INFO ),*];

    /// A client with one method per operation, over any transport.
    #[derive(Clone)]
    pub struct Client<T>(pub T);
    impl<T> Client<T> {
        /// Returns a client that sends this metadata with every call.
        pub fn given(&self, meta: Meta) -> Client<Given<'_, T>> {
            Client(Given { inner: &self.0, meta })
        }
    $(
        client_method!($name $args $($doc)+);
        $( client_method!($other $args concat!("[`", stringify!($name), "`](Self::", stringify!($name), ") in its second form.")); )?
    )* }
} }

macro_rules! define_operation { ($name:ident ( $($arg:ident: $T:ty),* ) $reply:ty, $info:expr) => {
    impl Operation for ops::$name {
        const INFO: OperationInfo = $info;
        type Path = part!(path [$($arg: $T),*]);
        type Query = part!(query [$($arg: $T),*]);
        type Body = part!(body [$($arg: $T),*]);
        type Reply = $reply;
    }
} }

macro_rules! client_method { ($name:ident ( $($arg:ident: $T:ty),* ) $($doc:expr)+) => {
    $(#[doc = $doc])+
    pub async fn $name(&self $(, $arg: $T)*) -> Outcome<ops::$name> where T: Transport<ops::$name> {
        let call = Call {
            meta: Meta::default(),
            path: value!(path [$($arg: $arg),*]),
            query: value!(query [$($arg: $arg),*]),
            body: value!(body [$($arg: $arg),*]),
        };
        self.0.send(call).await
    }
} }
