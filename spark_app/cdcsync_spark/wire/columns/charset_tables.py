"""The server's character sets where Python's codecs differ from them, as data.

Every entry was read from the servers (MariaDB 10.11 and 11.4, MySQL 9.7 agree) by
`CONVERT(x USING utf8mb4)` over all byte sequences; `tests/servers/test_binlog_charsets.py` compares
all of them again.
"""

from __future__ import annotations

#: one byte a character: Python's codec, and what replaces it from a byte on; U+FFFE marks bytes
#: that have no character
SINGLE_BYTE: dict[str, tuple[str, dict[int, str]]] = {
    "armscii8": (
        "ascii",
        {
            0x80: (
                "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93"
                "\x94\x95\x96\x97\x98\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0❁§։)(»«—.՝,-՟…՜՛՞ԱաԲբԳգԴդԵեԶ"
                "զԷէԸըԹթԺժԻիԼլԽխԾծԿկՀհՁձՂղՃճՄմՅյՆնՇշՈոՉչՊպՋջՌռՍսՎվՏտՐրՑցՒւՓփՔքՕօՖֆ’'"
            ),
        },
    ),
    "ascii": ("ascii", {}),
    "cp1250": ("cp1250", {}),
    "cp1251": ("cp1251", {}),
    "cp1256": (
        "cp1256",
        {
            0x8A: "\ufffe",
            0x8F: "\ufffe",
            0x98: "\ufffe",
            0x9A: "\ufffe",
            0x9F: "\ufffe",
            0xAA: "\ufffe",
            0xC0: "\ufffe",
            0xFF: "\ufffe",
        },
    ),
    "cp1257": ("cp1257", {}),
    "cp850": ("cp850", {}),
    "cp852": ("cp852", {}),
    "cp866": (
        "cp866",
        {
            0xFC: "ⁿ²",
        },
    ),
    "dec8": (
        "latin_1",
        {
            0xA4: "\ufffe",
            0xA6: "\ufffe",
            0xA8: "¤",
            0xAC: "\ufffe\ufffe\ufffe\ufffe",
            0xB4: "\ufffe",
            0xB8: "\ufffe",
            0xBE: "\ufffe",
            0xD0: "\ufffe",
            0xD7: "Œ",
            0xDD: "Ÿ\ufffe",
            0xF0: "\ufffe",
            0xF7: "œ",
            0xFD: "ÿ\ufffe\ufffe",
        },
    ),
    "geostd8": (
        "cp1252",
        {
            0x83: "\ufffe",
            0x88: "\ufffe",
            0x8A: "\ufffe",
            0x8C: "\ufffe",
            0x8E: "\ufffe",
            0x98: "\ufffe\ufffe\ufffe",
            0x9C: "\ufffe",
            0x9E: "\ufffe\ufffe",
            0xC0: (
                "აბგდევზჱთიკლმნჲოპჟრსტჳუფქღყშჩცძწჭხჴჯჰჵ\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
                "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
                "\ufffe\ufffe\ufffe№\ufffe\ufffe"
            ),
        },
    ),
    "greek": (
        "iso8859_7",
        {
            0xA1: "ʽʼ",
            0xA4: "\ufffe\ufffe",
            0xAA: "\ufffe",
        },
    ),
    "hebrew": (
        "iso8859_8",
        {
            0xAF: "‾",
        },
    ),
    "hp8": ("hp_roman8", {}),
    "keybcs2": (
        "cp852",
        {
            0x80: "Č",
            0x83: "ď",
            0x85: "ĎŤčěĚĹÍľĺ",
            0x8F: "Á",
            0x91: "žŽ",
            0x95: "ÓůÚý",
            0x9B: "ŠĽÝŘť",
            0xA4: "ňŇŮÔšřŕŔ¼¡",
            0xB5: "╡╢╖╕",
            0xBD: "╜╛",
            0xC6: "╞╟",
            0xCF: "╧╨╤╥╙╘╒╓╫╪",
            0xDD: "▌▐",
            0xE0: "α",
            0xE2: "ΓπΣσµτΦΘΩδ∞φε∩≡±≥≤⌠⌡",
            0xF7: "≈",
            0xF9: "∙·√ⁿ²",
        },
    ),
    "koi8r": ("koi8_r", {}),
    "koi8u": (
        "koi8_u",
        {
            0x95: "•",
        },
    ),
    "latin1": (
        "cp1252",
        {
            0x81: "\x81",
            0x8D: "\x8d",
            0x8F: "\x8f\x90",
            0x9D: "\x9d",
        },
    ),
    "latin2": ("iso8859_2", {}),
    "latin5": ("iso8859_9", {}),
    "latin7": ("iso8859_13", {}),
    "macce": ("mac_latin2", {}),
    "macroman": ("mac_roman", {}),
    "swe7": (
        "ascii",
        {
            0x40: "É",
            0x5B: "ÄÖÅÜ",
            0x60: "é",
            0x7B: "äöåü\ufffe",
        },
    ),
    "tis620": (
        "tis_620",
        {
            0xA0: "�",
            0xDB: "����",
            0xFC: "����",
        },
    ),
}

#: several bytes a character: Python's codec, and the sequences that it reads otherwise or not at
#: all
MULTI_BYTE: dict[str, tuple[str, dict[str, str]]] = {
    "big5": (
        "big5",
        {
            **dict.fromkeys(("a15a", "a1c3", "a1c5", "a1fe", "a240", "a2cc", "a2ce"), "\ufffd"),
            "f9d6": "\u7881",
            "f9d7": "\u92b9",
            "f9d8": "\u88cf",
            "f9d9": "\u58bb",
            "f9da": "\u6052",
            "f9db": "\u7ca7",
            "f9dc": "\u5afa",
        },
    ),
    "cp932": ("cp932", {}),
    "sjis": ("shift_jis", {"815f": "\\"}),
    "eucjpms": (
        "euc_jp",
        {
            "a1c1": "\uff5e",
            "a1c2": "\u2225",
            "a1dd": "\uff0d",
            "a1f1": "\uffe0",
            "a1f2": "\uffe1",
            "a2cc": "\uffe2",
            "8fa2b7": "\uff5e",
            "8fa2c3": "\uffe4",
        },
    ),
    "ujis": ("euc_jp", {"a1c0": "\\"}),
    "euckr": ("cp949", {}),
    "gb2312": ("gb2312", {}),
    "gbk": ("gbk", {}),
    "gb18030": ("gb18030", {"a8bc": "\u1e3f", "8135f437": "\ue7c7"}),
}

#: rows of vendor characters of eucjpms that Python's codec lacks: the first sequence, and the
#: characters from it on in rows of 94
EUCJPMS_ROWS: dict[str, str] = {
    "8ff3f3": (
        "ⅰⅱⅲⅳⅴⅵⅶⅷⅸⅹⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ＇＂㈱№℡炻仼僴凬匇匤﨎咊坙﨏塚增寬峵嵓﨑德悅愠敎昻晥晴朗栁﨓"
        "﨔橫櫢淸淲瀨凞猪甁皂皞益礰礼神祥福竧靖精綠緖羽荢﨟薰蘒﨡蠇諸譿賴赶﨣﨤逸郞都鄕﨧"
        "﨨閒隆﨩霻靍靑飯飼館馞髙魲鶴黑"
    ),
    "ada1": "①②③④⑤⑥⑦⑧⑨⑩⑪⑫⑬⑭⑮⑯⑰⑱⑲⑳ⅠⅡⅢⅣⅤⅥⅦⅧⅨⅩ",
    "adc0": "㍉㌔㌢㍍㌘㌧㌃㌶㍑㍗㌍㌦㌣㌫㍊㌻㎜㎝㎞㎎㎏㏄㎡",
    "addf": "㍻〝〟№㏍℡㊤㊥㊦㊧㊨㈱㈲㈹㍾㍽㍼≒≡∫∮∑√⊥∠∟⊿∵∩∪",
}
