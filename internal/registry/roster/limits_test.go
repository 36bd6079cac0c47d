package roster_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry/roster"
)

// TestAMistakeDoesNotMultiply reads documents that are made so that a small one
// would have a large answer, or take long to read. What is allocated stands for
// the time: each of these once copied the names above a value for every value.
func TestAMistakeDoesNotMultiply(t *testing.T) {
	name := strings.Repeat("n", 250)
	list := func(entry string, times int) string { return strings.Repeat(entry+", ", times) + entry }
	members := func(format string, times int) string {
		var b strings.Builder
		for i := range times {
			fmt.Fprintf(&b, format+", ", i)
		}
		return b.String() + `"last": 1`
	}
	json := func(text string) map[input.Format]string { return map[input.Format]string{input.JSON: text} }
	yaml := func(text string) map[input.Format]string { return map[input.Format]string{input.YAML: text} }
	both := func(text string) map[input.Format]string {
		return map[input.Format]string{input.JSON: text, input.YAML: "---\n" + text + "\n"}
	}
	nested := func(depth int, inside string) string {
		return strings.Repeat(`{"`+name+`": `, depth) + inside + strings.Repeat("}", depth)
	}
	for what, texts := range map[string]map[input.Format]string{
		"repeated keys below a key of 50 KB":        json(`{"` + strings.Repeat("k", 50<<10) + `": {` + list(`"a": 1`, 2000) + `}}`),
		"a repeated key of 50 KB":                   json("{" + list(`"`+strings.Repeat("k", 50<<10)+`": 1`, 20) + "}"),
		"3,000 members below a key of 1 MB":         json(`{"` + strings.Repeat("k", 1<<20) + `": {` + members(`"m%d": 1`, 3000) + `}}`),
		"NUL below long names":                      json(nested(60, "["+list(`"\u0000"`, 50_000)+"]")),
		"good values below long names":              both(nested(28, "["+list("1", 50_000)+"]")),
		"unknown members that look like known ones": both("{" + members(`"freqency_h%d": 1`, 30_000) + "}"),
		"unknown members of an agent":               both(`{"version": 1, "agents": [{` + members(`"tokn_budgt%d": 1`, 30_000) + `}]}`),
		"anchors below a key of 200 KB":             yaml("? " + strings.Repeat("k", 200<<10) + "\n: [" + list("&a 1", 3000) + "]\n"),
		"anchors below long names":                  yaml(nested(28, "["+list("&a 1", 30_000)+"]")),
		"long anchors":                              yaml("[" + list("&"+strings.Repeat("a", 10_000)+" 1", 100) + "]"),
		"long tags":                                 yaml("[" + list("!"+strings.Repeat("a", 10_000)+" 1", 100) + "]"),
		"aliases of a long anchor":                  yaml("[" + list("*"+strings.Repeat("a", 100), 1000) + "]"),
		"one long id for many agents":               both(`{"version": 1, "agents": [` + list(`{"id": "`+strings.Repeat("i", 10_000)+`"}`, 100) + "]}"),
		"agents without a member":                   both(`{"version": 1, "agents": [` + list("{}", 9000) + "]}"),
		"control characters":                        json(`{"version": 1, "agents": [{` + members(`"`+strings.Repeat(`\u0001`, 200)+`%d": 1`, 2000) + `}]}`),
		"no JSON below a long key":                  json(`{"` + strings.Repeat("k", 1<<20) + `": x}`),
		"a long word that is no YAML":               yaml("a: *" + strings.Repeat("k", 1<<20) + "\n"),
	} {
		for format, text := range texts {
			t.Run(what+" in "+string(format), func(t *testing.T) {
				var violations errs.Violations
				used := allocated(func() { _, violations = roster.Parse([]byte(text), format) })
				require.NotEmpty(t, violations)
				require.LessOrEqual(t, len(violations), 1000)
				require.Less(t, answerSize(t, violations), 1<<20)
				require.Less(t, used, 64<<20+80*len(text), "for %d bytes", len(text))
			})
		}
	}
}

func allocated(run func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	run()
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc - before.TotalAlloc)
}

func answerSize(t *testing.T, violations errs.Violations) int {
	t.Helper()
	text, err := json.Marshal(errs.From(violations.All()).Fields)
	require.NoError(t, err)
	return len(text)
}

func TestLongNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("k", 257)
	clipped := strings.Repeat("k", 64) + "…"
	for format, text := range map[input.Format]string{
		input.JSON: strings.Replace(goodJSON, `"name": "NOVA",`, `"name": "NOVA", "`+long+`": {"a": 1, "a": "\u0000"},`, 1),
		input.YAML: strings.Replace(good, "    name: NOVA\n", "    name: NOVA\n    ? "+long+"\n    : &a {b: &c 1}\n", 1),
	} {
		t.Run(string(format)+": one violation, and nothing below is judged", func(t *testing.T) {
			t.Parallel()
			_, violations := roster.Parse([]byte(text), format)
			require.Len(t, violations, 1, "%v", violations)
			require.Equal(t, "/agents/0/"+clipped, violations[0].Pointer)
			require.Equal(t, "max", violations[0].Rule)
			require.Contains(t, violations[0].Detail, "agents[0]."+clipped)
			require.Contains(t, violations[0].Detail, "256 bytes")
		})
	}
	t.Run("a name at the limit is only unknown", func(t *testing.T) {
		t.Parallel()
		for format, text := range map[input.Format]string{
			input.JSON: strings.Replace(goodJSON, `"name": "NOVA",`, `"name": "NOVA", "`+long[1:]+`": 1,`, 1),
			input.YAML: strings.Replace(good, "    name: NOVA\n", "    name: NOVA\n    ? "+long[1:]+"\n    : 1\n", 1),
		} {
			_, violations := roster.Parse([]byte(text), format)
			require.Len(t, violations, 1, "%v", violations)
			require.Equal(t, "/agents/0/"+long[1:], violations[0].Pointer)
			require.Equal(t, "unknown_field", violations[0].Rule)
		}
	})
}

// TestADocumentOfTooManyMistakesIsNotJudgedFurther: where not every violation is
// listed, a member that has none may still be bad.
func TestADocumentOfTooManyMistakesIsNotJudgedFurther(t *testing.T) {
	t.Parallel()
	text := "version: 1\nagents:\n" + strings.Repeat("  - {a: 1}\n", 1000) + "  - {id: last, level: 7}\n"
	doc, violations := roster.Parse([]byte(text), input.YAML)
	require.Len(t, violations, 1000)
	require.Len(t, doc.Agents, 1001)
	for _, entry := range doc.Agents {
		require.Equal(t, roster.Entry{}, entry)
	}
}
