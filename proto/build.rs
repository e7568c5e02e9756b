//! Generates the message types (and, under `rpc`, the services) from `proto/`. protox parses them, so no protoc is
//! needed on the machine.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new("proto");
    let files = ["workflow", "command", "state", "api", "peer"]
        .map(|name| root.join(format!("clawhive/v1/{name}.proto")));
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    let descriptors = protox::compile(&files, [root])?;
    let rpc = std::env::var_os("CARGO_FEATURE_RPC").is_some();
    tonic_prost_build::configure()
        // Ordered maps: the same message is always the same bytes.
        .btree_map(".")
        .bytes(".clawhive.v1.PutKey.value")
        .bytes(".clawhive.v1.KeyRow.value")
        .bytes(".clawhive.v1.KeyPut.value")
        .bytes(".clawhive.v1.KeyCompare.value")
        .bytes(".clawhive.v1.KeyResult.value")
        .bytes(".clawhive.v1.KeyView.value")
        .bytes(".clawhive.v1.Frame.payload")
        .bytes(".clawhive.v1.LogChunk.data")
        .bytes(".clawhive.v1.SnapshotChunk.data")
        .bytes(".clawhive.v1.PutKeyRequest.value")
        .bytes(".clawhive.v1.GetKeyResponse.value")
        .bytes(".clawhive.v1.RequestRow.outcomes")
        .bytes(".clawhive.v1.Applied.outcomes")
        .build_client(rpc)
        .build_server(rpc)
        .compile_fds(descriptors)?;
    Ok(())
}
