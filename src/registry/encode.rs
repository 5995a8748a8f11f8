//! Sends replies over HTTP.
use axum::{
    Json as JsonResponse,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use svc_client::{Accepted, Created, Json, Located, NoContent, Reply, Text, Wire};

/// Makes a response of a value.
pub trait Encode: Reply {
    fn encode(value: Self::Value) -> Response;
}

impl<T: Wire> Encode for Json<T> {
    fn encode(value: T) -> Response {
        JsonResponse(value).into_response()
    }
}
impl<T: Wire> Encode for Accepted<T> {
    fn encode(value: T) -> Response {
        (StatusCode::ACCEPTED, JsonResponse(value)).into_response()
    }
}
impl<T: Wire + Located> Encode for Created<T> {
    fn encode(value: T) -> Response {
        let location = HeaderValue::from_str(&value.location());
        let mut response = (StatusCode::CREATED, JsonResponse(value)).into_response();
        if let Ok(location) = location {
            response.headers_mut().insert(header::LOCATION, location);
        }
        response
    }
}
impl Encode for NoContent {
    fn encode((): ()) -> Response {
        StatusCode::NO_CONTENT.into_response()
    }
}
impl Encode for Text {
    fn encode(value: String) -> Response {
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], value).into_response()
    }
}
