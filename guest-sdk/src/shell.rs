//! Portable shell commands.
use crate::error::Result;
use crate::provider::Sandbox;
use crate::values::*;
pub async fn read_file<S: Sandbox>(_: Vec<u8>, _: String, _: ReadRange) -> Result<Content> {
    Err(Error::not_supported("read-file"))
}
pub async fn write_file<S: Sandbox>(_: Vec<u8>, _: String, _: ByteStream, _: WriteOptions) -> Result<u64> {
    Err(Error::not_supported("x"))
}
pub async fn stat<S: Sandbox>(_: Vec<u8>, _: String) -> Result<FileStat> {
    Err(Error::not_supported("x"))
}
pub async fn list_dir<S: Sandbox>(_: Vec<u8>, _: String, _: ListOptions) -> Result<Listing> {
    Err(Error::not_supported("x"))
}
pub async fn glob<S: Sandbox>(_: Vec<u8>, _: String, _: String, _: GlobOptions) -> Result<GlobResult> {
    Err(Error::not_supported("x"))
}
pub async fn grep<S: Sandbox>(_: Vec<u8>, _: String, _: String, _: GrepOptions) -> Result<GrepResult> {
    Err(Error::not_supported("x"))
}
pub async fn remove<S: Sandbox>(_: Vec<u8>, _: String, _: bool) -> Result<()> {
    Err(Error::not_supported("x"))
}
pub async fn make_dir<S: Sandbox>(_: Vec<u8>, _: String) -> Result<()> {
    Err(Error::not_supported("x"))
}
