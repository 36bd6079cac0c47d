package api_test

import "strings"

// badUnicode sends texts that confuse readers, terminals, databases and parsers. Valid text is
// stored unchanged, other bytes are rejected.
func badUnicode() []badInput {
	named := func(name, value, want string) badInput {
		return badInput{name: "unicode: " + name, target: "/api/v1/agents", body: draftWith("name", value), want: want}
	}
	described := func(name, value, want string) badInput {
		return badInput{name: "unicode: description with " + name, target: "/api/v1/agents", body: draftWith("description", value), want: want}
	}
	return []badInput{
		named("emoji", `"Ada 🤖"`, "201"),
		named("a family of joined emoji", `"👨‍👩‍👧‍👦"`, "201"),
		named("120 characters of four bytes", quoted(strings.Repeat("🤖", 120)), "201"),
		named("121 characters of four bytes", quoted(strings.Repeat("🤖", 121)), "invalid-request /name max"),
		named("an accent of its own", `"e\u0301"`, "201"),
		named("an accent in one", `"é"`, "201"),
		named("60 accents on one letter", quoted("Z"+strings.Repeat("\u0335", 60)), "201"),
		named("right to left", `"سارة"`, "201"),
		named("a direction override", quoted("abc\u202egnp.exe"), "201"),
		named("a zero width space inside", quoted("a\u200bb"), "201"),
		named("nothing but zero width spaces", quoted("\u200b\u200d\ufeff"), "invalid-request /name not_blank"),
		named("nothing but wide spaces", quoted("\u2003\u3000\u00a0"), "invalid-request /name not_blank"),
		named("spaces at both ends", `" A "`, "201"),
		named("a private character", quoted("\ue000"), "201"),
		named("a character that is none", quoted("a\uffff"), "201"),
		named("a replacement character", quoted("a\ufffd"), "201"),
		named("a surrogate pair, escaped", `"\ud83e\udd16"`, "201"),
		named("half a surrogate pair", `"\ud83e"`, "malformed-json /name utf8"),
		named("the other half", `"\udd16x"`, "malformed-json /name utf8"),
		named("a pair the wrong way round", `"\udd16\ud83e"`, "malformed-json /name utf8"),
		named("bytes that are not UTF-8", "\"a\xff\"", "malformed-json /name utf8"),
		named("an overlong slash", "\"a\xc0\xaf\"", "malformed-json /name utf8"),
		named("a surrogate in UTF-8", "\"a\xed\xa0\x80\"", "malformed-json /name utf8"),
		named("half a character", "\"a\xf0\x9f\xa4\"", "malformed-json /name utf8"),
		named("NUL", `"a\u0000b"`, "invalid-request /name printable"),
		named("a raw NUL", "\"a\x00b\"", "malformed-json /name syntax"),
		named("a line feed", `"a\nb"`, "invalid-request /name printable"),
		named("a header of its own", `"a\r\nX-Admin: true"`, "invalid-request /name printable"),
		named("a bell", `"a\u0007"`, "invalid-request /name printable"),
		named("DEL", "\"a\x7f\"", "invalid-request /name printable"),
		named("a control character of Latin-1", `"a\u0085"`, "invalid-request /name printable"),
		named("a tab", `"a\tb"`, "invalid-request /name printable"),
		named("a raw tab", "\"a\tb\"", "malformed-json /name syntax"),
		named("a paragraph separator", quoted("a\u2029b"), "201"),
		named("SQL", `"Robert'); DROP TABLE agents;--"`, "201"),
		named("HTML", `"<script>alert(1)</script>&amp;"`, "201"),
		named("a path", `"../../../etc/passwd"`, "201"),
		named("a template", `"{{7*7}}${jndi:ldap://x}%s%n"`, "201"),
		named("backslashes and quotes", `"\\\"\/'`+"`"+`"`, "201"),
		named("the word null", `"null"`, "201"),
		named("a number", `"1e3"`, "201"),
		described("lines and tabs", `"a\r\n\tb\n"`, "201"),
		described("NUL", `"\u0000"`, "invalid-request /description printable"),
		described("an escape character", `"\u001b[2J"`, "invalid-request /description printable"),
		described("2000 characters of four bytes", quoted(strings.Repeat("🤖", 2000)), "201"),
		described("2001 characters of four bytes", quoted(strings.Repeat("🤖", 2001)), "invalid-request /description max"),
	}
}

// badJSON sends bodies that are not JSON, or JSON of another structure.
func badJSON() []badInput {
	create := func(name, body, want string) badInput {
		return badInput{name: "json: " + name, target: "/api/v1/agents", body: body, want: want}
	}
	return []badInput{
		create("no body", "", "malformed-json - required"),
		create("white space", " \r\n\t", "malformed-json - required"),
		create("null", "null", "invalid-request - not_null"),
		create("a number", "1", "invalid-request - type"),
		create("a string", `"agent"`, "invalid-request - type"),
		create("true", "true", "invalid-request - type"),
		create("an array", "["+goodDraft+"]", "invalid-request - type"),
		create("text", "hello", "malformed-json - syntax"),
		create("a form", "id=x&name=y", "malformed-json - syntax"),
		create("YAML", "id: x\nname: y\n", "malformed-json - syntax"),
		create("XML", "<agent/>", "malformed-json - syntax"),
		create("an unfinished object", `{"id":"x"`, "malformed-json - syntax"),
		create("an unfinished string", `{"id":"x`, "malformed-json /id syntax"),
		create("a trailing comma", `{"id":"x",}`, "malformed-json - syntax"),
		create("a missing comma", `{"id":"x" "name":"y"}`, "malformed-json - syntax"),
		create("a missing colon", `{"id" "x"}`, "malformed-json /id syntax"),
		create("a missing value", `{"id":}`, "malformed-json /id syntax"),
		create("single quotes", `{'id':'x'}`, "malformed-json - syntax"),
		create("names without quotes", `{id:"x"}`, "malformed-json - syntax"),
		create("a comment", `{"id":"x"/* why */}`, "malformed-json - syntax"),
		create("a line comment", "{\n// why\n\"id\":\"x\"}", "malformed-json - syntax"),
		create("NaN", `{"level":NaN}`, "malformed-json /level syntax"),
		create("Infinity", `{"level":Infinity}`, "malformed-json /level syntax"),
		create("a hexadecimal number", `{"level":0x2}`, "malformed-json - syntax"),
		create("a leading zero", `{"level":02}`, "malformed-json - syntax"),
		create("a leading plus", `{"level":+2}`, "malformed-json /level syntax"),
		create("a leading point", `{"level":.2}`, "malformed-json /level syntax"),
		create("True", `{"level":True}`, "malformed-json /level syntax"),
		create("undefined", `{"level":undefined}`, "malformed-json /level syntax"),
		create("an unknown escape", `{"id":"\x41"}`, "malformed-json /id syntax"),
		create("a byte order mark", "\ufeff"+goodDraft, "malformed-json - syntax"),
		create("UTF-16", "\xff\xfe{\x00}\x00", "malformed-json - utf8"),
		create("NUL before", "\x00"+goodDraft, "malformed-json - syntax"),
		create("NUL behind", goodDraft+"\x00", "malformed-json - trailing_data"),
		create("a second object", goodDraft+goodDraft, "malformed-json - trailing_data"),
		create("a brace too many", goodDraft+"}", "malformed-json - trailing_data"),
		create("text behind", goodDraft+" -- DROP", "malformed-json - trailing_data"),
		create("a key given twice", `{"id":"$ID","id":"other"}`, "malformed-json /id duplicate_key"),
		create("a key given twice with one value", `{"id":"$ID","id":"$ID"}`, "malformed-json /id duplicate_key"),
		create("a key given twice, escaped", `{"id":"$ID","i\u0064":"other"}`, "malformed-json /id duplicate_key"),
		create("an unknown key", replaceMember(goodDraft, "colour", `"red"`), "invalid-request /colour unknown_field"),
		create("a misspelt key", replaceMember(goodDraft, "nmae", `"x"`), "invalid-request /nmae unknown_field"),
		create("a key in capitals", replaceMember(goodDraft, "ID", `"x"`), "invalid-request /ID unknown_field"),
		create("a key with a space", replaceMember(goodDraft, "id ", `"x"`), "invalid-request /id  unknown_field"),
		create("an empty key", replaceMember(goodDraft, "", `"x"`), "invalid-request / unknown_field"),
		create("a key with a slash and a tilde", replaceMember(goodDraft, "a/b~c", `"x"`), "invalid-request /a~1b~0c unknown_field"),
		create("a prototype", replaceMember(goodDraft, "__proto__", `{"admin":true}`), "invalid-request /__proto__ unknown_field"),
		create("a key of NUL", `{"\u0000":1}`, "invalid-request /\x00 printable"),
		create("is_active", replaceMember(goodDraft, "is_active", "true"), "invalid-request /is_active unknown_field"),
		create("children", replaceMember(goodDraft, "children", "[]"), "invalid-request /children unknown_field"),
		create("an unknown object of 63 levels", replaceMember(goodDraft, "deep", nested(63)), "invalid-request /deep unknown_field"),
		create("an unknown object of 64 levels", replaceMember(goodDraft, "deep", nested(64)), "malformed-json /deep"+strings.Repeat("/a", 63)+" depth"),
		create("half a million brackets", strings.Repeat("[", 500_000), "malformed-json "+strings.Repeat("/0", 64)+" depth"),
		create("half a million objects", strings.Repeat(`{"a":`, 100_000), "malformed-json "+strings.Repeat("/a", 64)+" depth"),
		create("a number of 100,000 digits", draftWith("token_budget", strings.Repeat("9", 100_000)), "invalid-request /token_budget range"),
		create("an exponent out of range", draftWith("token_budget", "1e999999999"), "invalid-request /token_budget range"),
		create("a negative zero", draftWith("sphere_id", "-0"), "invalid-request /sphere_id min"),
		create("one byte over a mebibyte", strings.Repeat(" ", 1<<20)+"{", "body-too-large "),
		create("a mebibyte of spaces around it", goodDraft+strings.Repeat(" ", 1<<20-len(goodDraft)-8), "201"),
	}
}

func nested(levels int) string {
	return strings.Repeat(`{"a":`, levels-1) + "{}" + strings.Repeat("}", levels-1)
}
