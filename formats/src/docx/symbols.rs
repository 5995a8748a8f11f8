//! Maps characters of the symbol fonts, which number their glyphs arbitrarily, to Unicode.
//!
//! The tables follow dingbat-to-unicode (BSD-2-Clause). U+FFFD marks glyphs without a character.

use std::borrow::Cow;

/// The character of `w:sym`, which has a font and the hexadecimal number of a glyph in it.
pub(super) fn character(font: Option<&str>, number: Option<&str>) -> Option<char> {
    glyph(font.unwrap_or_default(), u32::from_str_radix(number?, 16).ok()?)
}

/// A text as it is shown in a font: glyphs of a symbol font stand in a private area.
pub(crate) fn shown<'a>(text: &'a str, font: &str) -> Cow<'a, str> {
    let is_glyph = |character: char| ('\u{F020}'..='\u{F0FF}').contains(&character);
    match text.contains(is_glyph) {
        true => Cow::Owned(
            text.chars()
                .map(|character| match is_glyph(character) {
                    true => glyph(font, u32::from(character)).unwrap_or(character),
                    false => character,
                })
                .collect(),
        ),
        false => Cow::Borrowed(text),
    }
}

/// The character of a glyph of a font.
pub(crate) fn glyph(font: &str, number: u32) -> Option<char> {
    let own = match number {
        // Glyphs of a symbol font also have places in a private area.
        0xF020..=0xF0FF => number - 0xF000,
        _ => number,
    };
    let table = match font {
        "Symbol" => SYMBOL,
        "Wingdings" => WINGDINGS,
        "Wingdings 2" => WINGDINGS_2,
        "Wingdings 3" => WINGDINGS_3,
        "Webdings" => WEBDINGS,
        _ => "",
    };
    let glyph = usize::try_from(own).ok()?.checked_sub(0x20)?;
    match table.chars().filter(|character| *character != '\n').nth(glyph) {
        Some(char::REPLACEMENT_CHARACTER) => None,
        Some(character) => Some(character),
        // In an ordinary font the number is that of the character.
        None => char::from_u32(number).filter(|character| !character.is_control()),
    }
}

/// 32 glyphs per line, from 0x20.
const SYMBOL: &str = "\
\u{20}!∀#∃%&∍()*+,−./0123456789:;<=>?
≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_
‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}~�
��������������������������������
€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵
ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓
◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪�〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭�";

/// 32 glyphs per line, from 0x20.
const WINGDINGS: &str = "\
\u{20}🖉✂✁👓🕭🕮🕯🕿✆🖂🖃📪📫📬📭🗀🗁🗎🗏🗐🗄⌛🖮🖰🖲🖳🖴🖫🖬✇✍
🖎✌🖏👍👎☜☞☝☟🖐☺😐☹💣🕱🏳🏱✈☼🌢❄🕆✞🕈✠✡☪☯🕉☸♈♉
♊♋♌♍♎♏♐♑♒♓🙰🙵⚫🔾◼🞏🞐❑❒🞟⧫◆❖⬩⌧⮹⌘🏵🏶🙶🙷▯
🄋➀➁➂➃➄➅➆➇➈➉🄌➊➋➌➍➎➏➐➑➒➓🙢🙠🙡🙣🙞🙜🙝🙟∙•
⬝⭘🞆🞈🞊🞋🔿▪🞎🟁🟅★🟋🟏🟓🟑⯐⌖⯎⯏⯑✪✰🕐🕑🕒🕓🕔🕕🕖🕗🕘
🕙🕚🕛⮰⮱⮲⮳⮴⮵⮶⮷🙪🙫🙕🙔🙗🙖🙐🙑🙒🙓⌫⌦⮘⮚⮙⮛⮈⮊⮉⮋🡨
🡪🡩🡫🡬🡭🡯🡮🡸🡺🡹🡻🡼🡽🡿🡾⇦⇨⇧⇩⬄⇳⬁⬀⬃⬂🢬🢭🗶✓🗷🗹�";

/// 32 glyphs per line, from 0x20.
const WINGDINGS_2: &str = "\
\u{20}🖊🖋🖌🖍✄✀🕾🕽🗅🗆🗇🗈🗉🗊🗋🗌🗍📋🗑🗔🖵🖶🖷🖸🖭🖯🖱🖒🖓🖘🖙
🖚🖛👈👉🖜🖝🖞🖟🖠🖡👆👇🖢🖣🖑🗴🗸🗵☑⮽☒⮾⮿🛇⦸🙱🙴🙲🙳‽🙹🙺
🙻🙦🙤🙥🙧🙚🙘🙙🙛⓪①②③④⑤⑥⑦⑧⑨⑩⓿❶❷❸❹❺❻❼❽❾❿�
☉🌕☽☾⸿✝🕇🕜🕝🕞🕟🕠🕡🕢🕣🕤🕥🕦🕧🙨🙩⋅🞄⦁●○🞅🞇🞉⊙⦿🞌
🞍◾■□🞑🞒🞓🞔▣🞕🞖🞗🞘⬩⬥◇🞚◈🞛🞜🞝🞞⬪⬧◊🞠◖◗⯊⯋⯀⯁
⬟⯂⬣⬢⯃⯄🞡🞢🞣🞤🞥🞦🞧🞨🞩🞪🞫🞬🞭🞮🞯🞰🞱🞲🞳🞴🞵🞶🞷🞸🞹🞺
🞻🞼🞽🞾🞿🟀🟂🟄🟆🟉🟊✶🟌🟎🟐🟒✹🟃🟇✯🟍🟔⯌⯍※⁂������";

/// 32 glyphs per line, from 0x20.
const WINGDINGS_3: &str = "\
\u{20}⭠⭢⭡⭣⭦⭧⭩⭨⭰⭲⭱⭳⭶⭸⭻⭽⭤⭥⭪⭬⭫⭭⭍⮠⮡⮢⮣⮤⮥⮦⮧
⮐⮑⮒⮓⮀⮃⭾⭿⮄⮆⮅⮇⮏⮍⮎⮌⭮⭯⎋⌤⌃⌥␣⍽⇪⮸🢠🢡🢢🢣🢤🢥
🢦🢧🢨🢩🢪🢫🡐🡒🡑🡓🡔🡕🡗🡖🡘🡙▲▼△▽◀▶◁▷◣◢◤◥🞀🞂🞁�
🞃⯅⯆⯇⯈⮜⮞⮝⮟🠐🠒🠑🠓🠔🠖🠕🠗🠘🠚🠙🠛🠜🠞🠝🠟🠀🠂🠁🠃🠄🠆🠅
🠇🠈🠊🠉🠋🠠🠢🠤🠦🠨🠪🠬🢜🢝🢞🢟🠮🠰🠲🠴🠶🠸🠺🠹🠻🢘🢚🢙🢛🠼🠾🠽
🠿🡀🡂🡁🡃🡄🡆🡅🡇⮨⮩⮪⮫⮬⮭⮮⮯🡠🡢🡡🡣🡤🡥🡧🡦🡰🡲🡱🡳🡴🡵🡷
🡶🢀🢂🢁🢃🢄🢅🢇🢆🢐🢒🢑🢓🢔🢖🢕🢗���������������";

/// 32 glyphs per line, from 0x20.
const WEBDINGS: &str = "\
\u{20}🕷🕸🕲🕶🏆🎖🖇🗨🗩🗰🗱🌶🎗🙾🙼🗕🗖🗗⏴⏵⏶⏷⏪⏩⏮⏭⏸⏹⏺🗚🗳
🛠🏗🏘🏙🏚🏜🏭🏛🏠🏖🏝🛣🔍🏔👁👂🏞🏕🛤🏟🛳🕬🕫🕨🔈🎔🎕🗬🙽🗭🗪🗫
⮔✔🚲⬜🛡📦🛱⬛🚑🛈🛩🛰🟈🕴⬤🛥🚔🗘🗙❓🛲🚇🚍⛳⦸⊖🚭🗮⏐🗯🗲�
🚹🚺🛉🛊🚼👽🏋⛷🏂🏌🏊🏄🏍🏎🚘🗠🛢💰🏷💳👪🗡🗢🗣✯🖄🖅🖃🖆🖹🖺🖻
🕵🕰🖽🖾📋🗒🗓🕮📚🗞🗟🗃🗂🖼🎭🎜🎘🎙🎧💿🎞📷🎟🎬📽📹📾📻🎚🎛📺💻
🖥🖦🖧🕹🎮🕻🕼📟🖁🖀🖨🖩🖿🖪🗜🔒🔓🗝📥📤🕳🌣🌤🌥🌦☁🌨🌧🌩🌪🌬🌫
🌜🌡🛋🛏🍽🍸🛎🛍Ⓟ♿🛆🖈🎓🗤🗥🗦🗧🛪🐿🐦🐟🐕🐈🙬🙮🙭🙯🗺🌍🌏🌎🕊";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glyphs_have_their_characters() {
        for (font, number, expected) in [
            ("Symbol", "F061", Some('α')),
            ("Symbol", "00A5", Some('∞')),
            ("Wingdings", "F04A", Some('☺')),
            ("Wingdings", "F0A7", Some('▪')),
            ("Webdings", "F020", Some(' ')),
            ("Symbol", "F080", None),
            ("Arial", "00E9", Some('é')),
            ("Arial", "0007", None),
            ("Arial", "what", None),
            ("Arial", "D800", None),
        ] {
            assert_eq!(character(Some(font), Some(number)), expected, "{font} {number}");
        }
        for table in [SYMBOL, WINGDINGS, WINGDINGS_2, WINGDINGS_3, WEBDINGS] {
            assert_eq!(table.chars().filter(|character| *character != '\n').count(), 0xE0);
        }
    }
}
