import { Page } from "./components";
export const Agent = ({ id }: { id: string }) => <Page name="agent" title={id}><p /></Page>;
