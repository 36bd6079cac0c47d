package app_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/sandbox"
	"comet/store/seal"
	"comet/store/storetest"
)

// long is the deadline of every wait of a test.
const long = 90 * time.Second

// tests removes shared files after all tests.
type tests struct{ *testing.M }

func (r tests) Run() int {
	defer func() { _ = os.RemoveAll(programDir()) }()
	return r.M.Run()
}

func TestMain(m *testing.M) {
	if serveToolsIfAsked() {
		return
	}
	if readDatabaseIfAsked() {
		return
	}
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument { // a sandbox process of a server in this process
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	if serveToBoundaryIfAsked() {
		return
	}
	goleak.VerifyTestMain(tests{m})
}

// programDir is a directory for the program that other users may enter.
var programDir = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "comet-program-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // another user runs the program
	}
	if err != nil {
		panic(err)
	}
	return dir
})

// buildProgram builds the program once for all tests.
var buildProgram = sync.OnceValues(func() (string, error) {
	path := filepath.Join(programDir(), "comet")
	// The test cache tracks files that a test reads: reading the sources invalidates it when the
	// program changes.
	sources, err := filepath.Glob("../../cmd/comet/*.go")
	for _, file := range sources {
		_, e := os.ReadFile(file)
		err = errors.Join(err, e)
	}
	if err != nil {
		return "", err
	}
	args := append(append([]string{"build"}, buildFlags()...), "-o", path, "comet/cmd/comet")
	out, err := exec.Command("go", args...).CombinedOutput()
	if err != nil {
		return "", errors.Join(err, errors.New(string(out)))
	}
	return path, nil
})

// output collects what a process writes.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// end returns the last 4,000 bytes.
func (o *output) end() string {
	text := o.String()
	return text[max(0, len(text)-4000):]
}

// process is a running program. It is killed when its test ends.
type process struct {
	cmd    *exec.Cmd
	out    output // standard output
	log    output
	exited chan struct{}
	code   int
}

// setting changes the command of a process, for example its environment.
type setting func(*exec.Cmd)

func env(variables ...string) setting {
	return func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, variables...) }
}

// serve starts "comet serve" on a free port and a data directory.
func serve(t *testing.T, data string, settings ...setting) *process {
	t.Helper()
	return start(t, []string{"serve", "--listen", "127.0.0.1:0", "--data", data}, settings...)
}

func start(t *testing.T, args []string, settings ...setting) *process {
	t.Helper()
	path, err := buildProgram()
	require.NoError(t, err)
	p := &process{cmd: exec.Command(path, args...), exited: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.log
	p.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	for _, set := range settings {
		set(p.cmd)
	}
	migrated(t, p.cmd)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.exited)
		_ = p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
	}()
	t.Cleanup(func() {
		p.kill()
		if strings.Contains(p.log.String(), "DATA RACE") {
			t.Error("the program has a data race")
		}
		if t.Failed() {
			t.Logf("%s\nstdout:\n%s\nend of stderr:\n%s", strings.Join(args, " "), &p.out, p.log.end())
		}
	})
	return p
}

// migrated puts a migrated database into the empty data directory of a server with SQLite, because a
// migration is the largest part of its first start. A test of a first start passes a directory that does not exist.
func migrated(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	at := slices.Index(cmd.Args, "--data")
	if at < 0 || at+1 == len(cmd.Args) || cmd.Args[1] != "serve" || slices.ContainsFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "COMET_DATABASE_URL=") }) {
		return
	}
	data := cmd.Args[at+1]
	info, err := os.Stat(data)
	if err != nil || info.Mode().Perm()&0o200 == 0 {
		return
	}
	if files, err := os.ReadDir(data); err == nil && len(files) == 0 {
		storetest.CopySQLite(t, data)
	}
}

func (p *process) hasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// kill kills the process and waits for its end.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.exited
}

func (p *process) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
}

// exit waits for the end of the process and returns its exit code.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(long):
		require.Fail(t, "the process does not exit", "stderr:\n%s", p.log.end())
	}
	return p.code
}

// fails waits until the process fails, and returns its exit code and standard error.
func (p *process) fails(t *testing.T) (code int, message string) {
	t.Helper()
	code = p.exit(t)
	require.NotZero(t, code, "stdout:\n%s", &p.out)
	require.Empty(t, p.out.String(), "no address is printed")
	return code, p.log.String()
}

// stop terminates the process with SIGTERM and requires exit code 0.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.terminate(t)
	require.Zero(t, p.exit(t), "stderr:\n%s", p.log.end())
}

// url waits until the process prints its address.
func (p *process) url(t *testing.T) string {
	t.Helper()
	return p.says(t, `comet listens on (http://\S+) \(`)
}

// says waits for a match in its standard output and returns the first group.
func (p *process) says(t *testing.T, expression string) string {
	t.Helper()
	re := regexp.MustCompile(expression)
	var found []string
	require.Eventually(t, func() bool {
		select {
		case <-p.exited:
			return true
		default:
		}
		found = re.FindStringSubmatch(p.out.String())
		return found != nil
	}, long, 2*time.Millisecond, "no output matches %s", expression)
	require.NotNil(t, found, "the process ended:\n%s", p.log.end())
	return found[1]
}

// adminToken reads the token that the first start created.
func adminToken(t *testing.T, data string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "admin.token"))
	require.NoError(t, err)
	return strings.TrimSpace(string(text))
}

// onEveryDatabase runs a test on SQLite and, if configured, on PostgreSQL.
func onEveryDatabase(t *testing.T, fn func(t *testing.T, database setting)) {
	t.Helper()
	for _, name := range storetest.Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, databaseOf(t, name))
		})
	}
}

func databaseOf(t *testing.T, name string) setting {
	t.Helper()
	if name != "postgres" {
		return env()
	}
	return env("COMET_DATABASE_URL="+storetest.Migrated(t, name).DatabaseURL, secretKeys(t))
}

// secretKeys returns the variable of a new file with a key for several replicas.
func secretKeys(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "keys")
	require.NoError(t, os.WriteFile(file, []byte(seal.NewKey()), 0o600))
	return "COMET_SECRET_KEY_FILE=" + file
}
