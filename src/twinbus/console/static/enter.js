// The form that asks for the token, for whoever has opened the address without it.

import { showToken, takeToken } from "./token.js";

const problem = document.getElementById("problem");
const field = document.getElementById("token");

async function enter(token) {
  problem.textContent = "";
  try {
    await showToken(token);
    location.replace("./");
  } catch (error) {
    problem.textContent = error.message;
    field.focus();
  }
}

function enterByAddress() {
  const given = takeToken();
  if (given) enter(given);
  else field.focus();
}

document.getElementById("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  enter(field.value.trim().split("#").pop());
});
addEventListener("hashchange", enterByAddress);
enterByAddress();
