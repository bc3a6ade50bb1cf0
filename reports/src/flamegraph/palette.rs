//! Colours: the hue shows how a frame was found; the shade only distinguishes neighbours.

use fpprof_analysis::folded::{FoldedStack, Origin};
use fpprof_unwind::StopReason;
use inferno::flamegraph::color::Color;

/// The kind of a box, which determines its colour. In the order of the legend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    /// A process name, or everything.
    Process,
    /// Found by call frame information.
    Cfi,
    /// Found by the frame pointer.
    FramePointer,
    /// Found by a heuristic.
    Heuristic,
    /// A return address that does not follow a call.
    WithoutCall,
    /// Inlined: no frame of its own.
    Inlined,
    /// In the kernel.
    Kernel,
    /// The root of truncated stacks.
    Truncated,
    /// The root of broken stacks.
    Broken,
}

impl Kind {
    /// The kind of a frame. The leaf, which comes from the registers, has the colour of the strategy's other frames.
    pub(super) fn of(origin: Origin, leaf: Self) -> Self {
        match origin {
            Origin::Leaf => leaf,
            Origin::Cfi => Self::Cfi,
            Origin::FramePointer => Self::FramePointer,
            Origin::Kernel => Self::Kernel,
            Origin::Heuristic => Self::Heuristic,
            Origin::WithoutCall => Self::WithoutCall,
            Origin::Inlined => Self::Inlined,
        }
    }

    /// The kind of a stack's root.
    pub(super) fn of_root(stack: &FoldedStack) -> Self {
        match stack.stop {
            StopReason::Complete(_) | StopReason::NoStack(_) => Self::Process,
            StopReason::Truncated(_) => Self::Truncated,
            StopReason::Broken(_) => Self::Broken,
        }
    }

    /// The word in the legend; `None` for kinds that need no explanation.
    pub(super) fn legend(self) -> Option<&'static str> {
        match self {
            Self::Process => None,
            Self::Cfi => Some("call frame information"),
            Self::FramePointer => Some("frame pointer"),
            Self::Heuristic => Some("heuristic"),
            Self::WithoutCall => Some("no call before it"),
            Self::Inlined => Some("inlined"),
            Self::Kernel => Some("kernel"),
            Self::Truncated => Some("truncated"),
            Self::Broken => Some("broken"),
        }
    }

    /// Hue in degrees, saturation and lightness in per cent.
    fn base(self) -> (f64, f64, f64) {
        match self {
            Self::Process => (220.0, 12.0, 84.0),
            Self::Cfi => (34.0, 88.0, 63.0),
            Self::FramePointer => (210.0, 72.0, 70.0),
            Self::Heuristic => (300.0, 52.0, 72.0),
            Self::WithoutCall => (330.0, 80.0, 70.0),
            Self::Inlined => (50.0, 88.0, 76.0),
            Self::Kernel => (158.0, 36.0, 64.0),
            Self::Truncated => (220.0, 6.0, 66.0),
            Self::Broken => (2.0, 76.0, 66.0),
        }
    }

    /// The colour in the legend.
    pub(super) fn color(self) -> Color {
        let (hue, saturation, lightness) = self.base();
        from_hsl(hue, saturation, lightness)
    }

    /// The colour of a box: the legend's, varied slightly by the name.
    pub(super) fn color_of(self, name: &str) -> Color {
        let (hue, saturation, lightness) = self.base();
        if matches!(self, Self::Process | Self::Truncated | Self::Broken) {
            return self.color();
        }
        let hash = fnv1a(name.as_bytes());
        let spread = |shift: u32, range: f64| {
            let byte = u8::try_from(hash.wrapping_shr(shift) & 0xFF).unwrap_or_default();
            (f64::from(byte) / 255.0 - 0.5) * range
        };
        from_hsl(hue + spread(0, 12.0), saturation + spread(8, 12.0), lightness + spread(16, 9.0))
    }
}

/// FNV-1a, for colours only: stable across platforms and versions.
///
/// # Sources
/// Fowler, Noll, Vo: the 64-bit offset basis and prime (RFC 9923).
fn fnv1a(bytes: &[u8]) -> u64 {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of FNV depend only on the low bits of the bytes; fold the high half in.
    hash ^ (hash >> 32)
}

/// # Sources
/// CSS Color Module Level 4 §7.1, "Converting HSL Colors to sRGB".
fn from_hsl(hue: f64, saturation: f64, lightness: f64) -> Color {
    let (saturation, lightness) = (saturation.clamp(0.0, 100.0) / 100.0, lightness.clamp(0.0, 100.0) / 100.0);
    let amount = saturation * lightness.min(1.0 - lightness);
    let channel = |offset: f64| {
        let k = (offset + hue / 30.0).rem_euclid(12.0);
        let value = lightness - amount * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a value in 0..=255")]
        let byte = (value * 255.0).round() as u8;
        byte
    };
    Color { r: channel(0.0), g: channel(8.0), b: channel(4.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that the conversion gives the colours of CSS.
    #[test]
    fn hsl_is_the_one_of_css() {
        assert_eq!(from_hsl(0.0, 100.0, 50.0), Color { r: 255, g: 0, b: 0 });
        assert_eq!(from_hsl(120.0, 100.0, 25.0), Color { r: 0, g: 128, b: 0 });
        assert_eq!(from_hsl(240.0, 0.0, 100.0), Color { r: 255, g: 255, b: 255 });
        assert_eq!(from_hsl(-60.0, 100.0, 50.0), Color { r: 255, g: 0, b: 255 });
    }

    /// Check that FNV-1a gives the published values, compared after folding.
    #[test]
    fn hash_is_fnv1a() {
        let folded = |hash: u64| hash ^ (hash >> 32);
        assert_eq!(fnv1a(b""), folded(0xcbf2_9ce4_8422_2325));
        assert_eq!(fnv1a(b"a"), folded(0xaf63_dc4c_8601_ec8c));
        assert_eq!(fnv1a(b"foobar"), folded(0x8594_4171_f739_67e8));
    }

    /// Check that black text stays readable on every colour any name can get (WCAG contrast of at least 4.5).
    #[test]
    fn black_text_is_readable() {
        let linear = |byte: u8| {
            let c = f64::from(byte) / 255.0;
            if c <= 0.040_45 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        for kind in [
            Kind::Process,
            Kind::Cfi,
            Kind::FramePointer,
            Kind::Heuristic,
            Kind::WithoutCall,
            Kind::Inlined,
            Kind::Kernel,
            Kind::Truncated,
            Kind::Broken,
        ] {
            for n in 0..500 {
                let Color { r, g, b } = kind.color_of(&format!("function_{n}"));
                let luminance = 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
                let contrast = (luminance + 0.05) / 0.05;
                assert!(contrast >= 4.5, "{kind:?} function_{n}: {contrast:.2}");
            }
        }
    }
}
