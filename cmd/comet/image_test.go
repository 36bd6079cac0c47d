package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImageContext proves that .dockerignore lets every file through that the image is built from.
func TestImageContext(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)

	t.Run("every source file is in the context", func(t *testing.T) {
		t.Parallel()
		rules := parseIgnore(string(text))
		missing := map[string]string{} // folder below the top → one of its files
		for _, file := range imageSources(t) {
			if rules.leavesOut(file) {
				folder, _, _ := strings.Cut(file, "/")
				missing[folder] = file
			}
		}
		for _, folder := range slices.Sorted(maps.Keys(missing)) {
			t.Errorf(".dockerignore leaves out %s, but the image is built from %s: add !%s to .dockerignore", folder, missing[folder], folder)
		}
	})

	t.Run("a pattern means what it means to docker", func(t *testing.T) {
		t.Parallel()
		rules := parseIgnore("# a comment\n\n*\n!/go.mod\n!api/\n!store\n**/*_test.go\n**/testdata\n!store/testdata/kept.sql\nstore/a?[0-9].txt\n")
		for file, out := range map[string]bool{
			"README.md": true, "agent/client.go": true, "go.mod": false, "sub/go.mod": true, "api/api.go": false,
			"api/docs/index.html": false, "apis/api.go": true, "api/api_test.go": true, "main_test.go": true,
			"store/testdata/x.sql": true, "store/testdata/kept.sql": false, "store/deep/testdata/x/y.sql": true,
			"store/ab1.txt": true, "store/ab.txt": false, "store/deep/ab1.txt": false,
		} {
			require.Equal(t, out, rules.leavesOut(file), file)
		}
	})
}

// buildFlags are the flags with which the Dockerfile, `make build` and CI build the program.
const buildFlags = `-trimpath -ldflags "-s -w`

// TestImageBuilds builds the program from a copy of the build context, as the Dockerfile does.
func TestImageBuilds(t *testing.T) {
	t.Parallel()
	context := t.TempDir()
	for _, file := range buildContext(t) {
		content, err := os.ReadFile(filepath.Join("../..", file))
		require.NoError(t, err)
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(context, file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(context, file), content, 0o600))
	}
	goCommand(t, context, "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(t.TempDir(), "comet"), "./cmd/comet")
}

// buildContext lists the files that reach the builder: those that neither .gitignore nor
// .dockerignore leaves out.
func buildContext(t *testing.T) (files []string) {
	t.Helper()
	text, err := os.ReadFile("../../.dockerignore")
	require.NoError(t, err)
	cmd := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir, cmd.Stderr = "../..", os.Stderr
	list, err := cmd.Output()
	require.NoError(t, err)
	for file := range strings.SplitSeq(strings.Trim(string(list), "\x00"), "\x00") {
		if _, err := os.Stat(filepath.Join("../..", file)); err == nil && !parseIgnore(string(text)).leavesOut(file) {
			files = append(files, file)
		}
	}
	return files
}

// TestDockerfile checks what a build would report late, and what an orchestrator relies on.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	stages := parseDockerfile(t, string(text))
	names := []string{}
	for _, s := range stages {
		names = append(names, s.name)
	}
	require.Equal(t, []string{"build", "full", "minimal"}, names, "the last one is the default")
	files := buildContext(t)

	t.Run("every source of a copy exists", func(t *testing.T) {
		t.Parallel()
		for i, s := range stages {
			for _, arguments := range s.instructions["COPY"] {
				words := slices.DeleteFunc(strings.Fields(arguments), func(w string) bool { return strings.HasPrefix(w, "--chown=") })
				if from, is := strings.CutPrefix(words[0], "--from="); is {
					require.True(t, slices.Contains(names[:i], from) || strings.Contains(from, ":"), "%s is neither an earlier stage nor a tagged image", from)
					continue
				}
				for _, source := range words[:len(words)-1] {
					require.True(t, source == "." || slices.ContainsFunc(files, func(file string) bool {
						return file == source || strings.HasPrefix(file, source+"/")
					}), "%s is not in the build context", source)
				}
			}
		}
	})

	t.Run("the program is built like make build, by the version of Go that go.mod needs", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, strings.Join(stages[0].instructions["RUN"], "\n"), "CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build "+buildFlags+" -X main.version=${VERSION}")
		makefile, err := os.ReadFile("../../Makefile")
		require.NoError(t, err)
		require.Contains(t, string(makefile), "CGO_ENABLED=0 go build "+buildFlags+" -X main.version=$(VERSION)")
		var module struct{ Go string }
		require.NoError(t, json.Unmarshal(goCommand(t, "../..", "mod", "edit", "-json"), &module))
		needed := strings.Join(strings.Split(module.Go, ".")[:2], ".")
		require.Contains(t, stages[0].base, "golang:"+needed+"-")
	})

	t.Run("both images run the same program in the same way", func(t *testing.T) {
		t.Parallel()
		full, minimal := stages[1].instructions, stages[2].instructions
		require.Equal(t, "scratch", stages[2].base)
		require.Equal(t, []string{"65532:65532"}, minimal["USER"])
		require.Equal(t, []string{`["/comet"]`}, minimal["ENTRYPOINT"])
		require.Contains(t, minimal["HEALTHCHECK"][0], `CMD ["/comet", "healthcheck"]`)
		for _, name := range []string{"USER", "ENTRYPOINT", "CMD", "HEALTHCHECK", "EXPOSE", "VOLUME", "ARG"} {
			require.Equal(t, minimal[name], full[name], name)
		}
		for _, image := range []map[string][]string{full, minimal} {
			require.Contains(t, image["COPY"], "--from=build /out/comet /comet")
			require.Contains(t, image["ENV"][0], "COMET_LISTEN=0.0.0.0:8080 COMET_DATA=/data")
			for _, label := range []string{`title="comet"`, `licenses="Apache-2.0"`, `version="${VERSION}"`, `revision="${REVISION}"`, `source="${SOURCE}"`} {
				require.Contains(t, image["LABEL"][0], "org.opencontainers.image."+label)
			}
		}
	})
}

// dockerStage is a stage of a Dockerfile.
type dockerStage struct {
	name, base   string
	instructions map[string][]string // instruction → arguments of each
}

// parseDockerfile reads a Dockerfile whose stages all have names.
func parseDockerfile(t *testing.T, text string) (stages []dockerStage) {
	t.Helper()
	text = regexp.MustCompile(`(?m)^\s*#.*\n`).ReplaceAllString(text, "")
	text = regexp.MustCompile(`\s*\\\n\s*`).ReplaceAllString(text, " ")
	for line := range strings.Lines(text) {
		name, arguments, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case name == "":
		case name == "FROM":
			base, stage, named := strings.Cut(arguments, " AS ")
			require.True(t, named, line)
			stages = append(stages, dockerStage{stage, base, map[string][]string{}})
		default:
			last := stages[len(stages)-1].instructions
			last[name] = append(last[name], arguments)
		}
	}
	return stages
}

// imageSources lists the files below the top of the repository that "go build ./cmd/comet" reads
// for the image, by their slash-separated paths.
func imageSources(t *testing.T) []string {
	t.Helper()
	top, err := filepath.Abs("../..")
	require.NoError(t, err)
	sources := []string{"go.mod", "go.sum"}
	var module struct {
		Replace []struct{ New struct{ Path string } }
	}
	require.NoError(t, json.Unmarshal(goCommand(t, top, "mod", "edit", "-json"), &module))
	for _, r := range module.Replace {
		if strings.HasPrefix(r.New.Path, "./") {
			sources = append(sources, filepath.ToSlash(filepath.Join(r.New.Path, "go.mod")))
		}
	}
	packages := json.NewDecoder(bytes.NewReader(goCommand(t, top, "list", "-deps", "-json", "./cmd/comet")))
	for {
		var p struct {
			Dir                                 string
			GoFiles, SFiles, HFiles, EmbedFiles []string
		}
		err := packages.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		dir, err := filepath.Rel(top, p.Dir)
		if err != nil || !filepath.IsLocal(dir) {
			continue // of the standard library or the module cache
		}
		for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.HFiles, p.EmbedFiles) {
			sources = append(sources, filepath.ToSlash(filepath.Join(dir, name)))
		}
	}
	require.Contains(t, sources, "cmd/comet/main.go")
	return sources
}

// goCommand runs the go command for the image's platform and returns its output.
func goCommand(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Env = append(os.Environ(), "GOOS=linux", "CGO_ENABLED=0", "GOFLAGS=")
	out, err := cmd.Output()
	require.NoError(t, err)
	return out
}

// ignoreRules are the patterns of a .dockerignore file in their order.
type ignoreRules []ignoreRule

type ignoreRule struct {
	pattern *regexp.Regexp
	keeps   bool // the pattern begins with "!"
}

// parseIgnore reads a .dockerignore file: comments, "!", "*", "?", "[a-z]" and "**".
func parseIgnore(text string) (rules ignoreRules) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		pattern, keeps := strings.CutPrefix(line, "!")
		pattern = strings.Trim(pattern, "/")
		expression := regexp.QuoteMeta(pattern)
		for _, r := range [][2]string{{`\*\*/`, `(.*/)?`}, {`\*\*`, `.*`}, {`\*`, `[^/]*`}, {`\?`, `[^/]`}, {`\[`, `[`}, {`\]`, `]`}} {
			expression = strings.ReplaceAll(expression, r[0], r[1])
		}
		rules = append(rules, ignoreRule{regexp.MustCompile("^" + expression + "(/.*)?$"), keeps}) // a folder stands for its files
	}
	return rules
}

// leavesOut reports whether a file does not reach the builder: the last pattern that matches
// decides.
func (rules ignoreRules) leavesOut(file string) bool {
	for _, r := range slices.Backward(rules) {
		if r.pattern.MatchString(file) {
			return !r.keeps
		}
	}
	return false
}
