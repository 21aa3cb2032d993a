//! Known machines as one-line descriptions.

/// A named description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preset {
    /// The name, usable wherever a description is.
    pub name: &'static str,
    /// What it describes.
    pub about: &'static str,
    /// The description, in the grammar of [`super::synthetic`].
    pub spec: &'static str,
}

/// All presets.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "granite-rapids-snc3",
        about: "2-socket Granite Rapids, 3 sub-NUMA clusters each, 240 cores, SMT",
        spec: "2x3x40 smt=2 slit=averaged dist=\
               10,15,17,21,28,26/15,10,15,23,26,23/17,15,10,26,23,21/\
               21,28,26,10,15,17/23,26,23,15,10,15/26,23,21,17,15,10",
    },
    Preset {
        name: "clearwater-forest",
        about: "2-socket Clearwater Forest, 240 cores, no SMT, 4-core clusters",
        spec: "2x1x120 cluster=4 dist=10,21",
    },
    Preset {
        name: "genoa-nps4",
        about: "2-socket EPYC Genoa, 4 nodes per socket, 192 cores, SMT, 8-core LLCs",
        spec: "2x4x24 smt=2 llc=8 cache=32M reclaim=32 dist=10,12,32",
    },
    Preset {
        name: "power10",
        about: "POWER10-like, 4 sockets, 60 cores, SMT8, 480 CPUs",
        spec: "4x1x15 smt=8 llc=1 order=next arch=other dist=10,20",
    },
    Preset {
        name: "kunpeng920",
        about: "2-socket Kunpeng 920, 128 cores, 4 nodes in a line, 4-core clusters",
        spec: "2x2x32 cluster=4 arch=other dist=10,12,20,22/12,10,22,24/20,22,10,12/22,24,12,10",
    },
    Preset {
        name: "mesh8",
        about: "8 sockets in a mesh of up to 3 hops, as the Sun X4600",
        spec: "8x1x4 dist=\
               10,12,12,14,14,14,14,16/12,10,14,12,14,14,12,14/12,14,10,14,12,12,14,14/\
               14,12,14,10,12,12,14,14/14,14,12,12,10,14,12,14/14,14,12,12,14,10,14,12/\
               14,12,14,14,12,14,10,12/16,14,14,14,14,12,12,10",
    },
    Preset {
        name: "laptop-hybrid",
        about: "hybrid laptop: 6 fast cores with SMT, 8 slow ones in clusters of 4",
        spec: "1x1x14 smt=6*2+8*1 cluster=6*1+2*4 capacity=6*1024+8*640 order=next itmt=on",
    },
];

/// The preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}
