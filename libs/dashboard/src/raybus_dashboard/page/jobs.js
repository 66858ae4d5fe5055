// Shows RayJobs and RayCronJobs: tables of all, and one job with its attempts. All text is inserted as text.

import { clock, span } from "./chart.js";

const RUNS = 8;

/** Return what the address names: null without jobs, "" for all, else NAMESPACE/NAME of a job. */
export function jobOfAddress(hash) {
  const found = /^#\/jobs(?:\/([^/]+\/[^/]+))?$/.exec(hash);
  return found ? decodeURIComponent(found[1] ?? "") : null;
}

/** Build the views with the page's own means, so that both views look alike. */
export const jobTools = ({ make, text, badge, keyOf, SIGNS }) => {
  const seconds = (one, other) => Math.max(0, (Date.parse(other) - Date.parse(one)) / 1000);
  const link = (job) => make("a", { href: `#/jobs/${keyOf(job)}` }, text(job.name));

  function duration(job) {
    if (!job.started) return "-";
    return job.ended ? span(seconds(job.started, job.ended)) : make("span", { "data-since": job.started });
  }

  function table(title, heads, rows) {
    return make("section", { class: "card" }, make("h3", {}, title), make("div", { class: "scroll" }, make("table", {},
      make("caption", { class: "sr" }, title),
      make("thead", {}, make("tr", {}, ...heads.map((each) => make("th", { scope: "col" }, each)))),
      make("tbody", {}, ...rows.map((cells) => make("tr", {}, ...cells.map((each) => make("td", {}, each))))))));
  }

  const jobTable = (jobs) => table("RayJobs", ["Name", "Namespace", "Status", "Attempts", "Duration", "Cron job", "Age"],
    jobs.map((job) => [link(job), text(job.namespace), badge(job.tone, job.status), `${job.attempts}/${job.maxAttempts}`, duration(job),
      text(job.cronJob || "-"), job.created ? make("span", { "data-since": job.created }) : "-"]));

  function runs(cronJob, jobs) {
    const own = jobs.filter((job) => job.cronJob === cronJob.name && job.namespace === cronJob.namespace).slice(0, RUNS);
    if (!own.length) return "-";
    return make("span", { class: "runs" }, ...own.map((job) => make("a", { class: `badge ${job.tone}`, href: `#/jobs/${keyOf(job)}`, title: `${job.name}: ${job.status}`, "aria-label": `${job.name}: ${job.status}` }, SIGNS[job.tone])));
  }

  const cronTable = (cronJobs, jobs) => table("RayCronJobs", ["Name", "Namespace", "Schedule", "Status", "Next run", "Last runs"],
    cronJobs.map((each) => [text(each.name), text(each.namespace), text(each.timeZone ? `${each.schedule} (${each.timeZone})` : each.schedule),
      make("span", {}, badge(each.tone, each.status), each.problem ? make("p", { class: "small badish" }, text(each.problem)) : null),
      each.nextRun ? make("time", { datetime: each.nextRun, title: new Date(each.nextRun).toString() }, new Date(each.nextRun).toLocaleString()) : "-",
      runs(each, jobs)]));

  const problem = (shown) => shown.problem ? make("p", { class: "message bad" }, text(shown.problem)) : null;
  const none = () => make("p", { class: "quiet" }, "No RayJob. One is created with ", make("code", {}, "raybus submit"), ".");

  function all(shown) {
    return [
      make("h2", {}, "Jobs"),
      problem(shown),
      shown.cronJobs.length ? cronTable(shown.cronJobs, shown.jobs) : null,
      shown.jobs.length ? jobTable(shown.jobs) : shown.problem ? null : none(),
      shown.omitted ? make("p", { class: "quiet small" }, `${shown.omitted} older ones are left out: raybus list shows all.`) : null,
    ].filter(Boolean);
  }

  /** Only a list that is whole proves that a job does not exist. */
  function absent(shown, key) {
    if (!shown.problem && !shown.omitted) return make("p", { class: "quiet" }, text(`RayJob ${key} does not exist (any more).`));
    const [namespace, name] = key.split("/");
    return make("p", { class: "quiet" }, text(`RayJob ${key} is not among the jobs that this page shows. It is shown, if it exists, by `), make("code", {}, `raybus get rayjob/${name} -n ${namespace}`), ".");
  }

  function one(shown, key) {
    const job = shown.jobs.find((each) => keyOf(each) === key);
    const back = make("p", {}, make("a", { href: "#/jobs" }, "← All jobs"));
    if (!job) return [back, problem(shown), absent(shown, key)].filter(Boolean);
    const facts = [
      ["Attempts", `${job.attempts} of ${job.maxAttempts}`], ["Ray's status", job.jobStatus], ["Duration of the last attempt", duration(job)],
      ["Started", job.started && clock(job.started)], ["Ended", job.ended && clock(job.ended)], ["Reason", job.reason],
      ["RayCluster", job.cluster], ["Job ID", job.jobId], ["RayCronJob", job.cronJob],
    ].filter(([, value]) => value && value !== "-");
    const verb = (name, more = "") => make("li", {}, make("code", {}, `raybus ${name} rayjob/${job.name} -n ${job.namespace}${more}`));
    return [
      back,
      make("header", { class: "head" }, make("h2", {}, text(job.name), badge(job.tone, job.status)), make("p", { class: "facts" }, make("span", {}, "namespace ", make("b", {}, job.namespace)))),
      job.message ? make("p", { class: `message ${job.tone === "bad" ? "bad" : ""}` }, text(job.message)) : null,
      make("section", { class: "card" }, make("h3", {}, "Last attempt"), make("dl", { class: "figures" }, ...facts.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value instanceof Node ? value : text(value)))))),
      make("section", { class: "card" }, make("h3", {}, "More at a terminal"), make("ul", { class: "small" }, verb("explain"), verb("logs", " -f"), verb("get", " -w"), verb("history"))),
    ].filter(Boolean);
  }

  return { all, one };
};
