//! How long messages are.

use crate::rng::Rng;

/// Lengths of messages, drawn by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All alike, bytes.
    Fixed(u32),
    /// Each length from the first to the second is as likely as another, bytes.
    Uniform(u32, u32),
    /// As in the Homa papers' workload W3, cut at 1,000,000 B, but one in a hundred is long:
    /// 100,000 B to 1,000,000 B.
    W3WithLong,
}

/// W3: lengths in bytes, and how many of a million messages are no longer than that. Thinned.
/// Source: HomaModule util/dist.cc at 9edb958.
const W3: &[(u32, u32)] = &[
    (8, 64_883),
    (32, 97_324),
    (36, 108_913),
    (40, 120_503),
    (46, 132_092),
    (53, 143_681),
    (64, 155_271),
    (70, 187_988),
    (77, 220_705),
    (85, 253_422),
    (96, 286_139),
    (110, 318_856),
    (128, 351_573),
    (137, 369_864),
    (146, 388_155),
    (158, 406_446),
    (171, 424_737),
    (186, 443_028),
    (205, 461_319),
    (228, 479_610),
    (256, 497_901),
    (268, 523_994),
    (282, 550_086),
    (296, 576_179),
    (313, 602_272),
    (331, 628_365),
    (352, 654_457),
    (375, 680_550),
    (402, 706_643),
    (433, 732_736),
    (469, 758_828),
    (512, 784_921),
    (531, 790_513),
    (551, 796_104),
    (573, 801_695),
    (597, 807_286),
    (623, 812_878),
    (652, 818_469),
    (683, 824_060),
    (717, 829_652),
    (755, 835_243),
    (796, 840_834),
    (843, 846_426),
    (896, 852_017),
    (956, 857_608),
    (1_024, 863_200),
    (1_084, 868_273),
    (1_152, 873_347),
    (1_229, 878_420),
    (1_317, 883_494),
    (1_418, 888_568),
    (1_536, 893_641),
    (1_676, 898_715),
    (1_843, 903_788),
    (2_048, 908_862),
    (2_341, 915_385),
    (2_731, 921_908),
    (3_277, 928_431),
    (4_096, 934_955),
    (4_535, 940_636),
    (5_079, 946_318),
    (5_772, 951_999),
    (6_683, 957_681),
    (7_936, 963_362),
    (9_330, 969_281),
    (11_196, 975_247),
    (13_995, 981_214),
    (19_085, 986_309),
    (32_161, 990_294),
    (38_322, 991_229),
    (45_677, 992_015),
    (54_482, 992_677),
    (64_600, 993_214),
    (77_101, 994_418),
    (92_160, 995_494),
    (110_247, 996_397),
    (132_192, 997_151),
    (157_821, 997_578),
    (188_616, 997_937),
    (225_788, 998_240),
    (270_088, 998_515),
    (323_452, 998_849),
    (387_517, 999_129),
    (463_677, 999_362),
    (553_844, 999_526),
    (662_487, 999_607),
    (793_885, 999_675),
    (946_917, 999_730),
    (1_000_000, 1_000_000),
];

impl Sizes {
    pub fn draw(self, rng: &mut Rng) -> u32 {
        match self {
            Self::Fixed(len) => len,
            Self::Uniform(shortest, longest) => {
                shortest + rng.below(u64::from(longest - shortest) + 1) as u32
            }
            Self::W3WithLong if rng.one_in_thousand(10) => {
                Self::Uniform(100_000, 1_000_000).draw(rng)
            }
            Self::W3WithLong => {
                let lot = rng.below(1_000_000) as u32;
                let at = W3.partition_point(|&(_, below)| below <= lot);
                let longest = W3[at].0;
                let shortest = if at == 0 { longest } else { W3[at - 1].0 + 1 };
                Self::Uniform(shortest, longest).draw(rng)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// W3's median is 268 B, and 89 % are at most 1,400 B; one in a hundred is long.
    #[test]
    fn w3_has_the_papers_shape() {
        let mut rng = Rng::new(3);
        let mut lens: Vec<_> = (0..20_000)
            .map(|_| Sizes::W3WithLong.draw(&mut rng))
            .collect();
        lens.sort_unstable();
        assert!(
            (200..340).contains(&lens[10_000]),
            "median {}",
            lens[10_000]
        );
        let short = lens.partition_point(|&len| len <= 1400);
        assert!(
            (17_000..18_600).contains(&short),
            "{short} of 20,000 are short"
        );
        let long = lens.iter().filter(|&&len| len >= 100_000).count();
        assert!((120..400).contains(&long), "{long} of 20,000 are long");
    }

    #[test]
    fn the_table_rises_to_a_million() {
        assert!(
            W3.windows(2)
                .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1)
        );
        assert_eq!(W3.last(), Some(&(1_000_000, 1_000_000)));
    }
}
