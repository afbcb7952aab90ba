// Which page an address shows.
import {el, keepKey, say} from "./dom.js";

const PAGES = [
  [/^\/run\/(.+)$/, "./run.js"],
  [/^\/compare$/, "./several.js"],
  [/^\/$/, "./runs.js"],
];

keepKey();
const main = document.getElementById("main");
const [address, module] =
  PAGES.map(([form, name]) => [form.exec(location.pathname), name]).find(([found]) => found) ?? [];
try {
  if (!module) throw new Error("There is no such page.");
  await (await import(module)).show(main, ...address.slice(1).map(decodeURIComponent));
} catch (error) {
  main.replaceChildren(el("p", {class: "failing", role: "alert"}, error.message));
  say("");
}
