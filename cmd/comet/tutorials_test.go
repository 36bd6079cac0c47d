package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/store/storetest"
)

// The replicas of a tutorial use this database; a test replaces it by one of its own.
const tutorialDatabase = "postgres://comet:comet@127.0.0.1:5432/comet?sslmode=disable"

// TestTutorials executes the README and docs/tutorials, each in a folder that looks like a clone of
// the repository. The words after the language of a code block select what is done with it:
//
//	sh               runs in a shell that all such blocks of the page share, and succeeds
//	sh background    runs in a shell of its own, as in another terminal, until the page ends
//	sh untested      needs something that a test does not have, such as a container engine
//	text             is the output of the block before it, see outputPattern
//	text background  is a part of the output of the latest block in the background
//	go file=NAME     is the content of a file; other languages, too
func TestTutorials(t *testing.T) {
	testkit.SkipIfShort(t, "it starts servers and compiles programs")
	t.Parallel()
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	require.NoError(t, err)
	for _, page := range append(pages, "../../README.md") {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		text := readText(t, page)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTutorial(t)
			if strings.Contains(text, tutorialDatabase) {
				if !slices.Contains(storetest.Databases(), "postgres") {
					return
				}
				text = strings.ReplaceAll(text, tutorialDatabase, "$DATABASE")
				s.environ = append(s.environ, "DATABASE="+storetest.EmptyPostgres(t))
			}
			if strings.Contains(text, `"npx"`) && !s.providesServers() {
				return
			}
			blocks := codeBlocks(text)
			require.NotEmpty(t, blocks)
			for _, b := range blocks {
				s.execute(b)
			}
		})
	}
}

// TestREADMEHasTheTwoCommands requires the commands that must work without anything but Go.
func TestREADMEHasTheTwoCommands(t *testing.T) {
	t.Parallel()
	page := readText(t, "../../README.md")
	require.Contains(t, page, "\ngo run ./cmd/comet serve\n")
	require.Contains(t, page, "`go test ./...`")
	require.LessOrEqual(t, strings.Count(page, "\n"), 80, "one screen")
}

// codeBlock is a fenced block of a page.
type codeBlock struct {
	language string
	word     string // the rest of the info string
	text     string
	line     int
}

func codeBlocks(page string) (out []codeBlock) {
	inside := false
	for n, line := range strings.Split(page, "\n") {
		if info, fence := strings.CutPrefix(line, "```"); fence {
			if inside = !inside; inside {
				language, word, _ := strings.Cut(info, " ")
				out = append(out, codeBlock{language: language, word: word, line: n + 1})
			}
		} else if inside {
			out[len(out)-1].text += line + "\n"
		}
	}
	return out
}

// tutorial executes one page.
type tutorial struct {
	t         *testing.T
	folder    string
	environ   []string
	shell     *shell
	last      *shell            // the shell of the latest block, nil if the block was not executed
	behind    *shell            // the shell of the latest block in the background
	addresses map[string]string // address in the page → address in this test
}

// shims replace the commands that take minutes: the folder is the clone, and "go run ./cmd/comet" and
// "go build … ./cmd/comet" use the program that is tested.
const shims = `set -e -o pipefail
git() { ln -s . comet; }
go() {
	case "$1 ${*: -1}" in
	"build ./cmd/comet") mkdir -p bin && ln -sf "$PROGRAM" bin/comet; return ;;
	esac
	case "$1 $2" in
	"run ./cmd/comet") shift 2; "$PROGRAM" "$@" ;;
	*) command go "$@" ;;
	esac
}
`

func newTutorial(t *testing.T) *tutorial {
	t.Helper()
	s := &tutorial{t: t, folder: t.TempDir(), addresses: map[string]string{}}
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	for _, name := range []string{"agent", "cmd", "examples", "go.mod", "go.sum", "internal", "models", "openapi", "store", "third_party"} {
		require.NoError(t, os.Symlink(filepath.Join(root, name), filepath.Join(s.folder, name)))
	}
	caches, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	require.NoError(t, err)
	found := strings.Fields(string(caches))
	require.Len(t, found, 3)
	program, err := exec.LookPath("comet")
	require.NoError(t, err)
	path := slices.DeleteFunc(filepath.SplitList(os.Getenv("PATH")), func(folder string) bool { return folder == filepath.Dir(program) })
	s.environ = []string{
		"HOME=" + t.TempDir(), "PATH=" + strings.Join(path, string(filepath.ListSeparator)), "PROGRAM=" + program, "COMET_LISTEN=127.0.0.1:0",
		"GOCACHE=" + found[0], "GOMODCACHE=" + found[1], "GOPATH=" + found[2], "GOPROXY=off",
	}
	s.shell = s.startShell()
	return s
}

// npmServers is the folder that tools/mcp-servers/run prints. Without it the tutorials that use published servers are not
// executed; CI always has it.
const npmServers = "COMET_TEST_MCP_SERVERS"

// providesServers replaces npx by a program that runs the published MCP servers of npmServers.
func (s *tutorial) providesServers() bool {
	s.t.Helper()
	folder := os.Getenv(npmServers)
	if folder == "" {
		return false
	}
	programs := s.t.TempDir()
	script := "#!/bin/sh\nname=${2##*/server-}\nshift 2\nexec node '" + folder + "'/node_modules/@modelcontextprotocol/server-$name/dist/index.js \"$@\"\n"
	require.NoError(s.t, os.WriteFile(filepath.Join(programs, "npx"), []byte(script), 0o700)) //nolint:gosec // a program
	for i, v := range s.environ {
		if path, ok := strings.CutPrefix(v, "PATH="); ok {
			s.environ[i] = "PATH=" + programs + string(filepath.ListSeparator) + path
		}
	}
	s.shell.run(s.t, "npx", "export PATH="+programs+":$PATH\n")
	return true
}

func (s *tutorial) execute(b codeBlock) {
	s.t.Helper()
	at := fmt.Sprintf("line %d", b.line)
	file, isFile := strings.CutPrefix(b.word, "file=")
	switch {
	case isFile:
		path := filepath.Join(s.folder, file)
		require.NoError(s.t, os.MkdirAll(filepath.Dir(path), 0o755)) //nolint:gosec // a folder of sources
		require.NoError(s.t, os.WriteFile(path, []byte(s.here(b.text)), 0o600))
	case b.language == "sh" && b.word == "":
		s.shell.run(s.t, at, s.here(b.text))
		s.last = s.shell
	case b.language == "sh" && b.word == "background":
		s.behind = s.startShell()
		s.last = s.behind
		s.last.begin(s.t, s.here(b.text))
	case b.language == "sh" && b.word == "untested":
		s.last = nil
	case b.language == "text" && (b.word == "background" || s.last == s.behind && s.last != nil):
		s.await(at, b.text)
	case b.language == "text" && s.last == s.shell:
		matched := regexp.MustCompile(`^\s*` + outputPattern(s.here(b.text)) + `\s*$`).MatchString(s.last.output())
		require.True(s.t, matched, "%s: the output is not as the page says, but:\n%s", at, s.last.output())
	case b.language == "sh":
		require.Fail(s.t, "unknown word after sh", "%s: %s", at, b.word)
	}
}

// address is what a page calls a listener.
var address = regexp.MustCompile(`127\.0\.0\.1:\d{2,5}`)

// Addresses are written in other ways for bash and nats-server.
var (
	withColon    = strings.NewReplacer("/dev/tcp/127.0.0.1/", "/dev/tcp/127.0.0.1:", "worker.sh 127.0.0.1 ", "worker.sh 127.0.0.1:", "-p 4222", "-p -1")
	withoutColon = strings.NewReplacer("/dev/tcp/127.0.0.1:", "/dev/tcp/127.0.0.1/", "worker.sh 127.0.0.1:", "worker.sh 127.0.0.1 ")
)

// here replaces the addresses of a page. One that no output has shown is that of a listener to start.
func (s *tutorial) here(text string) string {
	return withoutColon.Replace(address.ReplaceAllStringFunc(withColon.Replace(text), func(a string) string {
		if current, ok := s.addresses[a]; ok {
			return current
		}
		return "127.0.0.1:0"
	}))
}

// await waits until a program in the background has printed the lines, and learns the addresses in
// them. "127.0.0.1:8080" is the server's from then on, as for a user without COMET_SERVER.
func (s *tutorial) await(at, lines string) {
	s.t.Helper()
	fresh := []string{}
	lines = address.ReplaceAllStringFunc(lines, func(a string) string {
		if current, ok := s.addresses[a]; ok {
			return current
		}
		fresh = append(fresh, a)
		return "ADDRESS"
	})
	pattern := strings.ReplaceAll(outputPattern(lines), "ADDRESS", `(127\.0\.0\.1:\d+)`)
	found := s.behind.await(s.t, at, regexp.MustCompile(pattern))
	for i, a := range fresh {
		s.addresses[a] = found[i+1]
	}
	if server, ok := s.addresses["127.0.0.1:8080"]; ok && slices.Contains(fresh, "127.0.0.1:8080") {
		s.environ = append(s.environ, "COMET_SERVER=http://"+server)
		s.shell.run(s.t, at, "export COMET_SERVER=http://"+server+"\n")
	}
}

// outputPattern returns an expression for an output: "…" is any text within a line, and a line that
// is only "…" any lines. White space at the ends of lines does not count.
func outputPattern(expected string) string {
	lines := strings.Split(strings.TrimSpace(expected), "\n")
	for i, line := range lines {
		lines[i] = strings.ReplaceAll(regexp.QuoteMeta(strings.TrimRight(line, " ")), "…", ".*")
	}
	pattern := strings.ReplaceAll("\n"+strings.Join(lines, "[ \t]*\n"), "\n.*[ \t]*\n", "\n(?:.*\n)*?")
	pattern = strings.TrimPrefix(pattern, "\n")
	if rest, ok := strings.CutSuffix(pattern, "\n.*"); ok {
		return rest + "\n(?s:.*)"
	}
	return pattern
}
