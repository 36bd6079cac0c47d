package sandbox_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// deno are the programs that the tests of Deno itself run: none unless one is named.
func deno() []string {
	if program := os.Getenv("COMET_TEST_DENO"); program != "" {
		return []string{program}
	}
	return nil
}

// script is a program that says a version and does something else otherwise.
func script(t *testing.T, version, otherwise string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "deno")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\nif [ \"$1\" = --version ]; then echo '"+version+"'; exit; fi\n"+otherwise+"\n"), 0o700)) //nolint:gosec // it is run
	return path
}

func TestWhatIsNoDenoIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, program, why string }{
		{"NotThere", "/nowhere/deno", "no such file"},
		{"NotInThePath", "deno-that-nobody-has", "executable file not found"},
		{"TooOld", script(t, "deno 1.46.3 (stable, release, x86_64-unknown-linux-gnu)", ""), "is Deno 1.46.3, sandbox.backend deno needs 2.9 or newer"},
		{"ALittleTooOld", script(t, "deno 2.8.1", ""), "is Deno 2.8.1, sandbox.backend deno needs 2.9 or newer"},
		{"NoNumber", script(t, "deno two", ""), "is Deno two"},
		{"AnotherProgram", script(t, "node 24", ""), `is not Deno: it says "node 24"`},
		{"OneThatFails", "/bin/false", "does not say its version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := sandbox.New(&sandbox.Options{Deno: c.program})
			require.NoError(t, err)
			err = s.Start(t.Context())
			require.ErrorContains(t, err, "sandbox.deno: ")
			require.ErrorContains(t, err, c.why)
			require.NoError(t, s.Stop(t.Context()))
		})
	}
}

// What runs the code in the place of Deno says what it likes.
func TestDenoIsNotTrusted(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	for _, how := range lies() {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			program := script(t, "deno 3.0.1", "exec '"+self+"' broken-child '"+how+"'")
			s := started(t, &sandbox.Options{Deno: program})
			f := fails(t, s, sandbox.Request{
				Code: "1", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
			require.Equal(t, sandbox.Crashed, f.Name, f)
		})
	}
}

func TestCodeInDenoFindsNothingOfDeno(t *testing.T) {
	t.Parallel()
	for _, program := range deno() {
		s := backend{program}.started(t, &sandbox.Options{MaxToolCalls: 1e6})
		for _, c := range []struct{ name, code, want string }{
			{"Globals", `Object.getOwnPropertyNames(globalThis).filter(n => /^[a-z]/.test(n)).sort().join(" ")`,
				`"a clearInterval clearTimeout console context decodeURI decodeURIComponent encodeURI encodeURIComponent escape eval globalThis isFinite isNaN mcp parseFloat parseInt queueMicrotask readTextFile setInterval setTimeout structuredClone undefined unescape"`},
			{"Symbols", `Reflect.ownKeys(globalThis).filter(k => typeof k === "symbol").map(String)`, `[]`},
			{"Classes", `[typeof Intl, typeof Temporal, typeof WebAssembly, typeof Worker, typeof Buffer, typeof EventTarget]`, `["undefined","undefined","undefined","undefined","undefined","undefined"]`},
			{"ItsOwnObject", `Reflect.ownKeys(Deno)`, `["readTextFile"]`},
			{"Imports", "const all = []\nfor (const what of ['node:process', 'node:fs', 'node:worker_threads', 'data:text/javascript,export default 1', 'file:///etc/passwd', 'npm:x'])\n  try { await import(what); all.push(what) } catch {}\nreturn all", `[]`},
			{"CodeOfStrings", "const all = []\nfor (const f of [() => eval('1'), () => (0, eval)('1'), () => new Function('return 1')(), () => (async () => {}).constructor('return 1')(), () => (function* () {} as any).constructor('return 1')(), () => setTimeout('1' as any)])\n  try { f(); all.push(String(f)) } catch {}\nreturn all", `[]`},
			{"TheOtherRealm", strings.Join([]string{
				"const foreign: any[] = [], seen = new Set<any>()",
				"const look = (v: any, way: string) => {",
				"  if (v === null || (typeof v !== 'object' && typeof v !== 'function') || seen.has(v)) return",
				"  seen.add(v)",
				"  let root = v",
				"  for (let p; (p = Reflect.getPrototypeOf(root)) !== null;) root = p",
				"  if (root !== Object.prototype && Reflect.ownKeys(root).includes('hasOwnProperty')) foreign.push(way)",
				"  for (const k of Reflect.ownKeys(v)) {",
				"    const d = Reflect.getOwnPropertyDescriptor(v, k)!",
				"    for (const x of [d.value, d.get, d.set]) look(x, way + '.' + String(k))",
				"  }",
				"  look(Reflect.getPrototypeOf(v), way + '.[[Prototype]]')",
				"}",
				"look(globalThis, 'globalThis')",
				"return foreign",
			}, "\n"), `[]`},
			{"ErrorsOfTheOtherRealm", strings.Join([]string{
				"const leaks: string[] = []", // what Deno's side throws where the stack ends is not of this realm
				"const look = (e: any) => { if (!(e instanceof Error)) leaks.push(String(e)) }",
				"const deep = (f: () => void): void => { try { deep(f) } catch (e) { look(e) } f() }",
				"for (const f of [() => console.log('x'), () => { setTimeout(() => {}, 1) }, () => { a.b({x: 'y'}) }])",
				"  try { deep(f) } catch (e) { look(e) }",
				"return leaks",
			}, "\n"), `[]`},
			{"ErrorsOfV8", strings.Join([]string{
				"const foreign: string[] = []",
				"const look = (e: any) => { for (let p = e; p !== Object.prototype; p = Reflect.getPrototypeOf(p)) if (p === null) { foreign.push(String(e)); break } }",
				"for (const f of [() => import('x'), () => import({ toString() { throw 1 } } as any), () => eval('1'), () => new Function('1'), () => 'x'.repeat(2 ** 30), () => new ArrayBuffer(2 ** 40), () => JSON.parse('{'), () => decodeURI('%')]) {",
				"  let p: any",
				"  try { p = f(); look(p); await p } catch (e) { if (e !== 1) look(e) }",
				"}",
				"return foreign",
			}, "\n"), `[]`},
			{"CallSites", strings.Join([]string{
				"const seen: string[] = []",
				"const prepareStackTrace = (_: any, sites: any) => { seen.push(String(sites)); return sites }",
				"const Real = Error",
				"const kinds = [() => new Real(), () => { try { null!.x } catch (e) { return e } }, () => { class Own extends Real { static prepareStackTrace = prepareStackTrace }; return new Own() },",
				"  () => { const o: any = {}; (Real as any).captureStackTrace(o); return o }, () => new TypeError()]",
				"const look = () => { for (const kind of kinds) if (typeof (kind() as any).stack !== 'string') seen.push('no text') }",
				"try { (Error as any).prepareStackTrace = prepareStackTrace; seen.push('set') } catch {}",
				"look()",
				"for (const own of [{ prepareStackTrace }, Object.assign(() => 1, { prepareStackTrace }), class extends Real { static prepareStackTrace = prepareStackTrace }]) { try { (globalThis as any).Error = own } catch {} look() }",
				"for (const on of [TypeError, Function.prototype, Object.prototype, Real.prototype, globalThis]) { Object.defineProperty(on, 'prepareStackTrace', { value: prepareStackTrace, configurable: true }); look() }",
				"return seen",
			}, "\n"), `[]`},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				got, err := s.Run(t.Context(), sandbox.Request{
					Code: c.code, Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
					Call: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) { return nil, nil },
				})
				require.NoError(t, err)
				require.Equal(t, c.want, string(got.Value))
			})
		}
	}
}

// It looks at the children of this process, and has no others beside it.
func TestProcessesOfDeno(t *testing.T) {
	for _, program := range deno() {
		folder := t.TempDir()
		t.Setenv("TMPDIR", folder)
		t.Run("ChildrenAreReadyBeforeTheyAreNeeded", func(t *testing.T) {
			s := backend{program}.started(t, &sandbox.Options{Warm: 1, MemoryMB: 64, MaxMemoryMB: 128})
			for range 3 {
				require.Eventually(t, func() bool {
					got, err := s.Run(t.Context(), sandbox.Request{Code: "2 + 2"})
					return err == nil && got.Metrics.Warm && string(got.Value) == "4"
				}, long, time.Millisecond)
			}
			got, err := s.Run(t.Context(), sandbox.Request{Code: "new Array(1e7).fill(1).length", MemoryMB: 128})
			require.NoError(t, err)
			require.False(t, got.Metrics.Warm, "the memory is that of the process")
		})
		require.Empty(t, children(t, os.Getpid()), "none is left when the sandbox has stopped")

		t.Run("AChildHasNothing", func(t *testing.T) {
			s := backend{program}.started(t, &sandbox.Options{MemoryMB: 64})
			var limits, environment, status, command string
			_, err := s.Run(t.Context(), sandbox.Request{
				Code: "await a.b()", Timeout: 20 * time.Second, Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
					for _, pid := range children(t, os.Getpid()) {
						if file("/proc/"+strconv.Itoa(pid)+"/cmdline") != "" { // one that reads may be ending
							limits, environment = file("/proc/"+strconv.Itoa(pid)+"/limits"), file("/proc/"+strconv.Itoa(pid)+"/environ")
							status, command = file("/proc/"+strconv.Itoa(pid)+"/status"), file("/proc/"+strconv.Itoa(pid)+"/cmdline")
						}
					}
					return nil, nil
				},
			})
			require.NoError(t, err)
			for _, name := range []string{"Max open files", "Max core file size", "Max file size"} {
				require.Equal(t, []string{"0", "0"}, limit(limits, name)[:2], name)
			}
			data, err := strconv.Atoi(limit(limits, "Max data size")[1])
			require.NoError(t, err)
			require.Less(t, data, 2<<30)
			require.NotContains(t, command, "--allow")
			for _, is := range strings.Split(strings.TrimRight(environment, "\x00"), "\x00") {
				name, _, _ := strings.Cut(is, "=")
				require.Contains(t, []string{"TZ", "NO_COLOR", "DENO_NO_UPDATE_CHECK", "DENO_DIR"}, name)
			}
			require.Contains(t, status, "NoNewPrivs:\t1")
		})

		t.Run("OneThatIsKilledInTheMiddle", func(t *testing.T) {
			s := backend{program}.started(t, nil)
			f := fails(t, s, sandbox.Request{
				Code: "console.log('before'); await a.b(); return 1", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
					for _, pid := range children(t, os.Getpid()) {
						_ = syscall.Kill(pid, syscall.SIGKILL)
					}
					<-ctx.Done() // the run is over
					return nil, ctx.Err()
				},
			})
			require.Equal(t, sandbox.Crashed, f.Name)
			require.Contains(t, f.Message, "killed")
			require.Equal(t, []sandbox.Log{{Level: "log", Message: "before"}}, f.Logs)
		})
		require.Empty(t, children(t, os.Getpid()))
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, left, "the folder with what Deno runs is gone")
	}
}

func file(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(data)
}

// BenchmarkDeno is BenchmarkRun with Deno.
func BenchmarkDeno(b *testing.B) {
	for _, program := range deno() {
		benchmarkRun(b, backend{program})
	}
}
