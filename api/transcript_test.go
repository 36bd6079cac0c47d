package api_test

import (
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

// TestTranscripts replays testdata/transcripts/*.txtar: HTTP requests and responses,
// including all that CHE·NU prints. Each file runs against a fresh server on each database;
// its sections run in order.
//
// A section is one exchange, or it is named "seed …" or "options" (seed,
// readOptions). An exchange begins with # lines that state the tested rule.
// Then comes the request, a printed curl command or
//
//	POST /api/v1/agents
//	Authorization: Bearer <token>
//	Content-Type: application/json
//
//	{…}
//
// where <token> is the secret of an admin's token, <name> that of a seeded one and
// <name.id> its id, and then the response:
//
//	HTTP/1.1 201 Created
//	Location: /api/v1/agents/custom-assistant
//
//	{…}
//	+ {…}
//
// A transcript lists only the headers that the rule concerns; "Name: $NONE" means that the
// header must be absent. A JSON body is compared as a value and must have exactly the expected
// members: the plus sign precedes members that the server adds to a body printed in the
// document; in an array {"$EACH": {…}} adds members to every printed entry. Other bodies are
// compared as text. Placeholders: $ANY matches anything, $TIME a time; $1 to $9 store their
// first match and represent it afterwards, also in requests. In an array "$OTHERS" allows
// further entries and "$ANYORDER" any order.
func TestTranscripts(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/transcripts/*.txtar")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) { //nolint:thelper // the body of the test
				archive, err := txtar.ParseFile(file)
				require.NoError(t, err)
				newPlayer(t, db, archive).play(archive)
			})
		})
	}
}

// transcriptPlayer replays one transcript.
type transcriptPlayer struct {
	*matcher
	t       *testing.T
	h       *fixture
	secrets map[string]string // of tokens, by their names in the transcript
	ids     map[string]string // of tokens, by their names with ".id"
}

func newPlayer(t *testing.T, db *storetest.DB, archive *txtar.Archive) *transcriptPlayer {
	t.Helper()
	require.NotEmpty(t, strings.TrimSpace(string(archive.Comment)), "the file does not say what it is about")
	h := setup(t, db, readOptions(t, archive))
	return &transcriptPlayer{
		matcher: &matcher{kept: map[string]string{}}, t: t, h: h,
		secrets: map[string]string{"token": h.admin}, ids: map[string]string{},
	}
}

func (p *transcriptPlayer) play(archive *txtar.Archive) {
	p.t.Helper()
	for _, section := range archive.Files {
		switch word, _, _ := strings.Cut(section.Name, " "); word {
		case "options":
		case "seed":
			p.seed(string(section.Data))
		default:
			p.exchange(section.Name, string(section.Data))
		}
	}
}

// exchange makes one request and compares the answer.
func (p *transcriptPlayer) exchange(name, text string) {
	p.t.Helper()
	comment, rest := leadingComment(replace(text, p.ids))
	require.NotEmpty(p.t, comment, "%s: which rule does it prove?", name)
	request, expected, found := strings.Cut(rest, "\nHTTP/1.1 ")
	got := p.request(name, replace(request, p.secrets)+"\n")
	if !found {
		require.Fail(p.t, "no answer is expected yet", "%s\n%s", name, got.transcript())
	}
	for _, difference := range p.compare(expected, got) {
		p.t.Errorf("%s: %s", name, difference)
	}
	if p.t.Failed() {
		require.FailNow(p.t, "the answer is another", "%s\n%s", name, got.transcript())
	}
}

// replace replaces <names> by their values.
func replace(text string, values map[string]string) string {
	for name, value := range values {
		text = strings.ReplaceAll(text, "<"+name+">", value)
	}
	return text
}

func leadingComment(text string) (comment, rest string) {
	for strings.HasPrefix(text, "#") {
		line, after, _ := strings.Cut(text, "\n")
		comment, text = comment+strings.TrimSpace(line[1:]), after
	}
	return comment, text
}

// request sends the request that text contains.
func (p *transcriptPlayer) request(name, text string) response {
	p.t.Helper()
	text = p.fill(text)
	if strings.HasPrefix(text, "curl ") {
		text = p.curl(name, text)
	}
	head, body, _ := strings.Cut(text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	method, target, ok := strings.Cut(lines[0], " ")
	require.True(p.t, ok, "%s: %q is no request line", name, lines[0])
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.h.url+target, strings.NewReader(strings.TrimSuffix(body, "\n")))
	require.NoError(p.t, err)
	for _, line := range lines[1:] {
		header, value, ok := strings.Cut(line, ": ")
		require.True(p.t, ok, "%s: %q is no header", name, line)
		req.Header.Add(header, value)
	}
	got, err := p.h.send(req)
	require.NoError(p.t, err)
	return got
}

// curl turns a curl command as CHE·NU §7 prints it into the request it makes.
func (p *transcriptPlayer) curl(name, command string) string {
	p.t.Helper()
	words := shellWords(strings.ReplaceAll(command, "$TOKEN", p.h.admin))[1:]
	method, target, body, headers := "GET", "", "", ""
	for len(words) > 0 {
		option := words[0]
		if words = words[1:]; !strings.HasPrefix(option, "-") {
			target = strings.TrimPrefix(option, "https://api.chenu.io")
			continue
		}
		require.NotEmpty(p.t, words, "%s: %s of nothing", name, option)
		switch option {
		case "-X":
			method = words[0]
		case "-H":
			headers += words[0] + "\n"
		case "-d":
			body = words[0]
		default:
			require.Fail(p.t, "an option that is not read", "%s: %s", name, option)
		}
		words = words[1:]
	}
	return method + " " + target + "\n" + headers + "\n" + body + "\n"
}

// shellWords splits a command as a shell does, as far as quotes and backslashes go.
func shellWords(command string) (words []string) {
	var word strings.Builder
	quote, begun := rune(0), false
	end := func() {
		if begun {
			words = append(words, word.String())
		}
		word.Reset()
		begun = false
	}
	for _, c := range strings.ReplaceAll(command, "\\\n", " ") {
		switch {
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, begun = c, true
		case quote == 0 && strings.ContainsRune(" \n\t", c):
			end()
		default:
			begun = true
			word.WriteRune(c)
		}
	}
	end()
	return words
}

// compare returns the differences between the response and the expected one.
func (p *transcriptPlayer) compare(expected string, got response) (differences []string) {
	head, body, _ := strings.Cut(expected, "\n\n")
	lines := strings.Split(strings.TrimSuffix(head, "\n"), "\n")
	if status := fmt.Sprintf("%d %s", got.status, http.StatusText(got.status)); status != lines[0] {
		return []string{"the status is " + status + ", not " + lines[0]}
	}
	for _, line := range lines[1:] {
		name, want, ok := strings.Cut(line, ": ")
		values := got.header.Values(name)
		switch {
		case !ok:
			differences = append(differences, strconv.Quote(line)+" is no header")
		case want == "$NONE" && len(values) > 0:
			differences = append(differences, name+" is there: "+values[0])
		case want != "$NONE" && !p.text(want, strings.Join(values, ", ")):
			differences = append(differences, fmt.Sprintf("%s is %q, not %s", name, values, want))
		}
	}
	return append(differences, p.compareBody(body, got)...)
}

func (p *transcriptPlayer) compareBody(expected string, got response) []string {
	contentType := got.header.Get("Content-Type")
	if !strings.HasSuffix(contentType, "json") || !strings.HasPrefix(strings.TrimSpace(expected), "{") {
		if !p.text(strings.TrimSpace(expected), strings.TrimSpace(string(got.body))) {
			return []string{"the body is another"}
		}
		return nil
	}
	if isProblem := contentType == "application/problem+json"; isProblem != (got.status >= 400) {
		return []string{"the Content-Type is " + contentType}
	}
	printed, added, _ := strings.Cut("\n"+expected, "\n+ ")
	want, err := parse([]byte(printed))
	if err == nil && added != "" {
		var more any
		if more, err = parse([]byte(added)); err == nil {
			want, err = merge(want, more)
		}
	}
	if err != nil {
		return []string{"the expected body: " + err.Error()}
	}
	value, err := parse(got.body)
	if err != nil {
		return []string{"the body: " + err.Error()}
	}
	return p.value("", want, value)
}

// transcript formats a response as in a transcript.
func (r response) transcript() string {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\n", r.status, http.StatusText(r.status))
	for _, name := range slices.Sorted(maps.Keys(r.header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.header[name], ", "))
	}
	return b.String() + "\n" + string(r.body)
}
