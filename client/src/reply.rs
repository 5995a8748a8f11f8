//! What a call may answer.
use crate::{Failure, Json, operation::Wire};

/// The form of a successful answer.
pub trait Reply: Send + 'static {
    type Value: Send;
    /// The status of success.
    const STATUS: u16;
    /// Reads the answer's bytes.
    fn decode(bytes: &[u8]) -> Result<Self::Value, Failure>;
    /// Describes the answer and names the schemas that it refers to.
    #[cfg(feature = "openapi")]
    fn describe(schemas: &mut Schemas) -> utoipa::openapi::Response;
}

#[cfg(feature = "openapi")]
type Schemas = Vec<(String, utoipa::openapi::RefOr<utoipa::openapi::Schema>)>;

/// A reference to the named schema of `T`, which is put among `schemas` with all that it uses.
#[cfg(feature = "openapi")]
pub(crate) fn reference<T: utoipa::ToSchema>(schemas: &mut Schemas) -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
    schemas.push((T::name().into_owned(), T::schema()));
    T::schemas(schemas);
    utoipa::openapi::Ref::from_schema_name(T::name()).into()
}

#[cfg(feature = "openapi")]
fn json_response<T: utoipa::ToSchema>(description: &str, schemas: &mut Schemas) -> utoipa::openapi::Response {
    let content = utoipa::openapi::ContentBuilder::new().schema(Some(reference::<T>(schemas))).build();
    utoipa::openapi::ResponseBuilder::new().description(description).content("application/json", content).build()
}

fn from_json<T: Wire>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes)
        .map_err(|e| Failure::unreachable(format!("the answer is not of this version's form: {e}")))
}

macro_rules! json_reply {
    ($name:ident, $status:literal, $description:literal) => {
        impl<T: Wire> Reply for $name<T> {
            type Value = T;
            const STATUS: u16 = $status;
            fn decode(bytes: &[u8]) -> Result<T, Failure> {
                from_json(bytes)
            }
            #[cfg(feature = "openapi")]
            fn describe(schemas: &mut Schemas) -> utoipa::openapi::Response {
                json_response::<T>($description, schemas)
            }
        }
    };
}

/// 201 with the new resource and its Location.
pub struct Created<T>(pub T);
/// 202: the request is stored, and work on it continues.
pub struct Accepted<T>(pub T);
json_reply!(Json, 200, "Success");
json_reply!(Created, 201, "Created");
json_reply!(Accepted, 202, "Accepted");

/// Where a new resource can be read.
pub trait Located {
    /// An absolute path of this service.
    fn location(&self) -> String;
}

/// 204.
pub struct NoContent;
impl Reply for NoContent {
    type Value = ();
    const STATUS: u16 = 204;
    fn decode(_: &[u8]) -> Result<(), Failure> {
        Ok(())
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> utoipa::openapi::Response {
        utoipa::openapi::Response::new("Done; nothing to say")
    }
}

/// 200 with plain text.
pub struct Text;
impl Reply for Text {
    type Value = String;
    const STATUS: u16 = 200;
    fn decode(bytes: &[u8]) -> Result<String, Failure> {
        String::from_utf8(bytes.to_vec()).map_err(|e| Failure::unreachable(format!("the answer is not UTF-8: {e}")))
    }
    #[cfg(feature = "openapi")]
    fn describe(_: &mut Schemas) -> utoipa::openapi::Response {
        let text = utoipa::openapi::ObjectBuilder::new().schema_type(utoipa::openapi::Type::String);
        let content = utoipa::openapi::ContentBuilder::new().schema(Some(text)).build();
        utoipa::openapi::ResponseBuilder::new().description("Text").content("text/plain", content).build()
    }
}
