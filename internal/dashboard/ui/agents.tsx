import { Page } from "./components";
export const Agents = () => <Page name="agents" title="Agents"><p /></Page>;
