// Icons are paths on a grid of 16 × 16, drawn in the colour of the text.
const paths = {
  overview: "M2.5 2.5h4.5v5H2.5zM9 2.5h4.5v3H9zM9 7.5h4.5v6H9zM2.5 9.5h4.5v4H2.5z",
  agents: "M8 2v3M8 8v0M3.5 11V9.5A1.5 1.5 0 0 1 5 8h6a1.5 1.5 0 0 1 1.5 1.5V11M6.5 2.5h3v3h-3zM2 11h3v3H2zM11 11h3v3h-3zM6.5 11h3v3h-3zM8 5.5v5.5",
  tasks: "M6.5 4H14M6.5 8H14M6.5 12H14M2 4l1 1 1.8-2M2 8l1 1 1.8-2M2.2 12h1.6",
  workflows: "M2 3h4v4H2zM10 9h4v4h-4zM6 5h3.5a2.5 2.5 0 0 1 2.5 2.5V9",
  tools: "M9.5 6.5 14 2M10 2.6A3.6 3.6 0 0 0 5.6 7L2 10.6 5.4 14 9 10.4A3.6 3.6 0 0 0 13.4 6",
  webhooks: "M5.5 7.5 8 3.5M10.5 7.5 8 3.5M4 12h8M8 2.5v1M3 11a1.5 1.5 0 1 0 1.5 1.5M13 11a1.5 1.5 0 1 1-1.5 1.5",
  access: "M10.5 6.5a3 3 0 1 0-3.1 3L7 10H5.5v1.5H4V13H2v-2.2L5.6 7.2M11 5h0",
  events: "M2 8h3l2-5 3 10 2-5h2",
  search: "M7 12A5 5 0 1 0 7 2a5 5 0 0 0 0 10zM10.6 10.6 14 14",
  warning: "M8 2 1.5 13.5h13zM8 6.5v3M8 11.5v0",
  check: "M3 8.5 6.5 12 13 4.5",
  close: "M4 4l8 8M12 4l-8 8",
  code: "M5.5 4.5 2 8l3.5 3.5M10.5 4.5 14 8l-3.5 3.5",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1",
  moon: "M13.5 9.5A6 6 0 0 1 6.5 2.5 6 6 0 1 0 13.5 9.5z",
  right: "M6 3.5 10.5 8 6 12.5",
  down: "M3.5 6 8 10.5 12.5 6",
  inbox: "M2 9.5 4 3h8l2 6.5V13H2zM2 9.5h3.5L6.5 11h3l1-1.5H14",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.5V8l2.5 1.5",
  plus: "M8 3v10M3 8h10",
  exit: "M6 2.5H2.5v11H6M10.5 5 13.5 8l-3 3M13 8H6",
};

export type IconName = keyof typeof paths;

/** Icon is decorative: the text beside it, or the label of its button, has the same meaning. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}
