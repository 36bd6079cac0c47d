// The frame around every view: navigation, search, the state of the event stream, and the theme.
import type { ComponentChildren } from "preact";
import { useCurrentInView } from "./components";
import { count } from "./format";
import { Icon } from "./icons";
import { position, reason, state } from "./live";
import { openPalette, shortcut } from "./palette";
import { link, path } from "./router";
import { address, visible } from "./sections";
import { listens, logOut, me } from "./session";
import { Problem } from "./api";
import { switchTheme, theme } from "./theme";
import { notify, Toasts } from "./toasts";
import iconURL from "./icon-url";

export function Brand() {
  return (
    <a class="brand" href="/ui/">
      <img src={iconURL()} alt="" /> comet
    </a>
  );
}

export function Shell({ children }: { children: ComponentChildren }) {
  const current = path.value.split("/")[0];
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById("main")?.focus())}>
        Skip to content
      </a>
      <div class="frame">
        <div class="side">
          <Brand />
          <nav aria-label="Main" ref={useCurrentInView<HTMLElement>(current)}>
            <ul>
              {visible().map((s) => (
                <li key={s.id}>
                  <a href={address(s)} aria-current={s.id === current ? "page" : undefined}>
                    <Icon name={s.icon} /> {s.title}
                  </a>
                </li>
              ))}
            </ul>
          </nav>
          <footer>
            <a class="faint" href="/docs">
              REST API
            </a>
          </footer>
        </div>
        <div>
          <header class="bar">
            <button class="search" onClick={() => openPalette()} aria-haspopup="dialog">
              <Icon name="search" /> Search <kbd>{shortcut}</kbd>
            </button>
            <div class="end">
              {listens() && <Live />}
              <ThemeButton />
              <Account />
            </div>
          </header>
          {state.value === "off" && reason.value && (
            <div class="notice warn" role="status">
              <div>No live data: {reason.value} The page reconnects automatically.</div>
            </div>
          )}
          {children}
        </div>
      </div>
      <Toasts />
    </>
  );
}

function Live() {
  const text = { on: "live", off: "not connected", connecting: "connecting" }[state.value];
  return (
    <span class="live" data-state={state.value} title={"Position of the last event: " + position.value}>
      <span role="status">{text}</span> <span class="position">· {count(position.value)}</span>
    </span>
  );
}

function Account() {
  const leave = () => void logOut().catch((thrown) => notify("bad", Problem.of(thrown).detail));
  return (
    <span class="account">
      <a class="truncate" style={{ maxWidth: "160px" }} href={link("access")} title="Your token">
        {me.value?.token.name}
      </a>
      <button class="quiet" aria-label="Log out" title="Log out" onClick={leave}>
        <Icon name="exit" />
      </button>
    </span>
  );
}

function ThemeButton() {
  const dark = theme() === "dark";
  const label = dark ? "Use the light theme" : "Use the dark theme";
  return (
    <button class="quiet" aria-label={label} title={label} onClick={switchTheme}>
      <Icon name={dark ? "sun" : "moon"} />
    </button>
  );
}
