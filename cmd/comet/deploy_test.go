package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"comet/internal/config"
)

// TestCompose starts no containers: it reads the environment of each replica as the server would,
// and compares compose.yaml with the configuration of the proxy.
func TestCompose(t *testing.T) {
	t.Parallel()
	var file struct {
		Services map[string]struct {
			Image       string
			Environment map[string]string
			Volumes     []string
			StopGrace   time.Duration  `yaml:"stop_grace_period"`
			DependsOn   map[string]any `yaml:"depends_on"`
			Healthcheck any
			Secrets     []string
		}
		Volumes map[string]any
		Secrets map[string]struct{ File string }
	}
	readYAML(t, "../../compose.yaml", &file)
	proxy := readText(t, "../../deploy/caddy/Caddyfile")
	replicas := []string{}
	data := map[string]string{} // volume of the data directory → replica
	for name, s := range file.Services {
		require.Regexp(t, `^[\w./-]+:[\w.-]+$`, s.Image, "%s has a tag", name)
		for other := range s.DependsOn {
			require.Contains(t, file.Services, other)
		}
		for _, v := range s.Volumes {
			source, target, _ := strings.Cut(v, ":")
			if strings.HasPrefix(source, ".") {
				require.FileExists(t, filepath.Join("../..", source))
				continue
			}
			require.Contains(t, file.Volumes, source)
			require.Empty(t, data[source], "two services share the volume %s", source)
			data[source] = name + target
		}
		if s.Image != "comet:latest" {
			continue
		}
		replicas = append(replicas, name+":8080")
		environ := []string{}
		for variable, value := range s.Environment {
			environ = append(environ, variable+"="+substitute(value, map[string]string{"COMET_ADMIN_TOKEN": strings.Repeat("t", 32)}))
		}
		c, err := config.Load(config.Sources{Environ: environ})
		require.NoError(t, err, name)
		require.Equal(t, "postgres://comet:comet@postgres:5432/comet?sslmode=disable", c.DatabaseURL)
		require.Equal(t, "nats://nats:4222", c.NATSURL)
		require.Equal(t, []string{filepath.Base(c.SecretKeyFile)}, s.Secrets)
		require.Equal(t, "./secret.key", file.Secrets[s.Secrets[0]].File)
		require.Equal(t, "https://localhost", c.MCP.PublicURL)
		require.Contains(t, s.DependsOn, "postgres")
		require.Contains(t, s.DependsOn, "nats")
		require.Greater(t, s.StopGrace, c.HTTP.DrainDelay+c.HTTP.ShutdownTimeout)
		require.Greater(t, c.HTTP.DrainDelay, 2*time.Second, "the proxy checks every second with a timeout of 2s")
	}
	slices.Sort(replicas)
	require.Len(t, replicas, 2)
	require.Contains(t, proxy, "reverse_proxy "+strings.Join(replicas, " ")+" {")
	require.Contains(t, proxy, "health_uri /readyz\n\t\thealth_interval 1s\n\t\thealth_timeout 2s\n")
	require.Contains(t, readText(t, "../../Dockerfile"), "COMET_LISTEN=0.0.0.0:8080")
}

// substitute replaces ${NAME:-default} and ${NAME:?error} as docker compose does.
func substitute(text string, values map[string]string) string {
	return regexp.MustCompile(`\$\{(\w+):([-?])([^}]*)\}`).ReplaceAllStringFunc(text, func(match string) string {
		name, rest, _ := strings.Cut(strings.Trim(match, "${}"), ":")
		if value, isSet := values[name]; isSet || rest[0] == '?' {
			return value
		}
		return rest[1:]
	})
}

// TestKubernetes checks what a schema cannot: that the manifests fit each other and the server.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	const folder = "../../deploy/kubernetes/"
	var kustomization struct{ Resources []string }
	readYAML(t, folder+"kustomization.yaml", &kustomization)
	files, err := filepath.Glob(folder + "*.yaml")
	require.NoError(t, err)
	names := []string{"kustomization.yaml", "ingress.yaml"}
	require.Contains(t, readText(t, folder+"kustomization.yaml"), "# ingress.yaml is not part of it")
	for _, file := range files {
		if base := filepath.Base(file); !slices.Contains(names, base) {
			require.Contains(t, kustomization.Resources, base)
		}
	}
	require.Len(t, files, len(kustomization.Resources)+len(names))

	type probe struct {
		HTTPGet          struct{ Path, Port string } `yaml:"httpGet"`
		PeriodSeconds    int                         `yaml:"periodSeconds"`
		FailureThreshold int                         `yaml:"failureThreshold"`
	}
	var deployment struct {
		Spec struct {
			Replicas int
			Template struct {
				Metadata struct{ Labels map[string]string }
				Spec     struct {
					TerminationGracePeriodSeconds int    `yaml:"terminationGracePeriodSeconds"`
					ServiceAccountName            string `yaml:"serviceAccountName"`
					Containers                    []struct {
						Env            []struct{ Name, Value string }
						StartupProbe   probe `yaml:"startupProbe"`
						LivenessProbe  probe `yaml:"livenessProbe"`
						ReadinessProbe probe `yaml:"readinessProbe"`
						Ports          []struct {
							Name          string
							ContainerPort int `yaml:"containerPort"`
						}
						Resources struct{ Limits struct{ Memory string } }
					}
				}
			}
		}
	}
	readYAML(t, folder+"deployment.yaml", &deployment)
	pod := deployment.Spec.Template.Spec
	require.Equal(t, 2, deployment.Spec.Replicas)
	require.Len(t, pod.Containers, 1)
	container := pod.Containers[0]

	t.Run("the environment is a valid configuration", func(t *testing.T) {
		t.Parallel()
		secrets := t.TempDir()
		created := regexp.MustCompile(`--from-literal=(\w+)=(\S+)`).FindAllStringSubmatch(readText(t, folder+"kustomization.yaml"), -1)
		for _, literal := range created {
			value := strings.Replace(literal[2], `"$(openssl`, strings.Repeat("t", 32), 1)
			require.NoError(t, os.WriteFile(filepath.Join(secrets, literal[1]), []byte(value), 0o600))
		}
		environ := []string{}
		for _, v := range container.Env {
			environ = append(environ, v.Name+"="+strings.Replace(v.Value, "/run/secrets/comet", secrets, 1))
		}
		c, err := config.Load(config.Sources{Environ: environ})
		require.NoError(t, err)
		require.NotEmpty(t, c.AdminToken)
		require.FileExists(t, c.SecretKeyFile)
		require.Equal(t, "postgres://comet:PASSWORD@postgres:5432/comet", c.DatabaseURL)
		require.Equal(t, "nats://nats:4222", c.NATSURL)

		require.Greater(t, time.Duration(pod.TerminationGracePeriodSeconds)*time.Second, c.HTTP.DrainDelay+c.HTTP.ShutdownTimeout)
		noticed := time.Duration(container.ReadinessProbe.PeriodSeconds*container.ReadinessProbe.FailureThreshold) * time.Second
		require.Greater(t, c.HTTP.DrainDelay, noticed, "traffic ends before the listener closes")
		limit, err := strconv.Atoi(strings.TrimSuffix(container.Resources.Limits.Memory, "Mi"))
		require.NoError(t, err)
		require.GreaterOrEqual(t, limit-c.Sandbox.Running*c.Sandbox.MemoryMB, 1024, "code leaves the server its memory")
	})

	t.Run("the parts select the pods and their port", func(t *testing.T) {
		t.Parallel()
		require.Equal(t, "http", container.Ports[0].Name)
		require.Equal(t, 8080, container.Ports[0].ContainerPort)
		require.Equal(t, "/healthz", container.StartupProbe.HTTPGet.Path)
		require.Equal(t, "/healthz", container.LivenessProbe.HTTPGet.Path)
		require.Equal(t, "/readyz", container.ReadinessProbe.HTTPGet.Path)
		for _, p := range []probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
			require.Equal(t, "http", p.HTTPGet.Port)
		}
		label := deployment.Spec.Template.Metadata.Labels["app.kubernetes.io/name"]
		require.Equal(t, "comet", label)
		for _, file := range []string{"service.yaml", "poddisruptionbudget.yaml", "networkpolicy.yaml"} {
			require.Regexp(t, `(?i)selector:\n(    matchLabels:\n  )?    app.kubernetes.io/name: comet\n|selector:\n    matchLabels:\n      app.kubernetes.io/name: comet\n`, readText(t, folder+file), file)
		}
		require.Equal(t, "comet", pod.ServiceAccountName)
		require.Contains(t, readText(t, folder+"serviceaccount.yaml"), "\n  name: comet\n")
	})
}

// TestSystemd checks the unit of the Debian package and its settings.
func TestSystemd(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{Environ: []string{"COMET_CONFIG=../../deploy/systemd/comet.yaml"}})
	require.NoError(t, err)
	require.Equal(t, "/var/lib/comet", c.Data)
	unit := readText(t, "../../deploy/systemd/comet.service")
	setting := func(name string) string {
		found := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindStringSubmatch(unit)
		require.NotNil(t, found, name)
		return found[1]
	}
	require.Equal(t, filepath.Base(c.Data), setting("StateDirectory"))
	stop, err := time.ParseDuration(setting("TimeoutStopSec"))
	require.NoError(t, err)
	require.Greater(t, stop, c.HTTP.DrainDelay+c.HTTP.ShutdownTimeout)

	var deb struct {
		Contents []struct{ Src, Dst string }
		Scripts  map[string]string
	}
	readYAML(t, "../../deploy/deb/nfpm.yaml", &deb)
	installed := []string{}
	for _, f := range deb.Contents {
		installed = append(installed, f.Dst)
		if !strings.HasPrefix(f.Src, "$") {
			require.FileExists(t, filepath.Join("../..", f.Src))
		}
	}
	for _, script := range deb.Scripts {
		require.FileExists(t, filepath.Join("../..", script))
	}
	program, arguments, _ := strings.Cut(setting("ExecStart"), " ")
	require.Contains(t, installed, program)
	require.Contains(t, installed, strings.TrimPrefix(arguments, "serve --config "))
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text)
}

func readYAML(t *testing.T, path string, into any) {
	t.Helper()
	require.NoError(t, yaml.Unmarshal([]byte(readText(t, path)), into))
}
